package leasetest

import (
	"encoding/binary"

	"github.com/leaderlease/go/leaderlease"
)

// ProcessID returns the ID of the node's process, which its connections carry.
func (n *Node) ProcessID() leaderlease.ProcessID { return n.process(n.Process()) }

// process returns the ID of a process of the node; numbers begin with 1.
func (n *Node) process(number int) (id leaderlease.ProcessID) {
	binary.BigEndian.PutUint64(id[:8], n.ID)
	binary.BigEndian.PutUint64(id[8:], uint64(number))
	return id
}

// ProcessDied tells the node that a process of a peer will never execute another instruction,
// which must be true. With NodeOptions.Suspects the node campaigns in its turn, without at once.
func (n *Node) ProcessDied(peer uint64, dead leaderlease.ProcessID) {
	n.exec(func() {
		if n.lease == nil {
			return
		}
		m, void := n.lease.ProcessDied(peer, dead)
		switch {
		case n.detector == nil && void:
			n.step(m, leaderlease.ProcessID{})
		case n.detector == nil:
		case void:
			n.notice = m
			n.detector.Obituary(m, n.wall())
			n.elect(n.detector.Poll(n.wall(), n.standing()))
			n.pollSoon()
		default:
			n.detector.Gone(peer, n.wall())
			n.pollSoon()
		}
	})
}
