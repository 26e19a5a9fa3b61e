package leasetest

import (
	"encoding/binary"

	"github.com/leaderlease/go/leaderlease"
)

// ProcessID names the node's process, as its connections do.
func (n *Node) ProcessID() leaderlease.ProcessID { return n.process(n.Process()) }

// process is the ID of a process of the node, by its number from 1 on.
func (n *Node) process(number int) (id leaderlease.ProcessID) {
	binary.BigEndian.PutUint64(id[:8], n.ID)
	binary.BigEndian.PutUint64(id[8:], uint64(number))
	return id
}

// ProcessDied tells the node that a process of a peer will never execute another instruction,
// which must be so. With NodeOptions.Suspects it acts upon it in its turn, and without at once.
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
			n.word = m
			n.detector.ProcessDied(m, n.wall())
			n.elect(n.detector.Poll(n.wall(), n.standing()))
			n.pollSoon()
		default:
			n.detector.Gone(peer, n.wall())
			n.pollSoon()
		}
	})
}
