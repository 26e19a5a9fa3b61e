package leasetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// Campaign asks the node to campaign.
func (n *Node) Campaign() { n.exec(func() { _ = n.raw.Campaign() }) }

// Transfer asks the node, as leader, to hand leadership to another.
func (n *Node) Transfer(to uint64) { n.exec(func() { n.raw.TransferLeader(to) }) }

// Resign makes the node's Lease resign in favor of another node, even if its loop is busy,
// and reports whether the node led. The node keeps running; call Crash to stop it.
func (n *Node) Resign(to uint64) bool {
	if !n.up || n.paused {
		return false
	}
	m, led := n.lease.Resign(to)
	if led {
		n.send([]*raftpb.Message{m})
	}
	return led
}

// ForgetLeader makes a follower forget its leader.
func (n *Node) ForgetLeader() { n.exec(func() { _ = n.raw.ForgetLeader() }) }

// Change proposes a configuration change.
func (n *Node) Change(cc raftpb.ConfChangeI) {
	n.exec(func() {
		// Raft makes a normal entry of a second attempt to leave a joint configuration.
		if n.mayAppend() || len(cc.AsV2().GetChanges()) == 0 && !n.changing() {
			_ = n.raw.ProposeConfChange(cc)
		}
	})
}

func (n *Node) first() uint64 {
	first, err := n.disk.FirstIndex()
	must(err)
	return first
}

// Write proposes a new version of key. write is unique; done is called with the
// version once this node has applied it, or never.
func (n *Node) Write(key, write uint64, done func(version uint64)) {
	n.exec(func() {
		if n.mayAppend() && n.raw.Propose(n.machine.Command(key, write)) == nil {
			n.writes[write] = done
		}
	})
}

// Read reads key linearizably, by any path. It calls done with the version or an error, or
// never if the process dies.
func (n *Node) Read(key uint64, done func(version uint64, path leaderlease.Path, err error)) {
	n.read(context.Background(), key, false, done)
}

// ReadIndex is Read without any lease, which relies on no clock.
func (n *Node) ReadIndex(key uint64, done func(version uint64, path leaderlease.Path, err error)) {
	n.read(context.Background(), key, true, done)
}

func (n *Node) read(ctx context.Context, key uint64, quorum bool, done func(uint64, leaderlease.Path, error)) {
	mode := leaderlease.ReadModeLease
	if quorum {
		mode = leaderlease.ReadModeQuorum
	}
	n.exec(func() {
		switch n.Options.Kind {
		case Library:
			run := n.run
			n.lease.StartRead(ctx, mode, func(r leaderlease.ReadResult, err error) {
				if n.run != run {
					return
				}
				if err == nil && n.Applied() < r.Index {
					panic(fmt.Sprintf("read of index %d before it was applied: applied %d", r.Index, n.Applied()))
				}
				done(n.Version(key), r.Path, err)
			})
		default:
			if !n.mayAnswerReads() {
				done(0, leaderlease.PathNone, errNoOwnTerm)
				return
			}
			n.stockRead(func() { done(n.Version(key), leaderlease.PathReadIndex, nil) })
		}
	})
}

// TryRead reads key under the lease, without waiting. The status is leaderlease.StatusValid
// if it was served; a read that would have to wait for the state machine is
// not.
func (n *Node) TryRead(key uint64) (version uint64, s leaderlease.Status) {
	if !n.up || n.paused || n.lease == nil {
		return 0, leaderlease.StatusNone
	}
	index, s := n.lease.TryRead()
	if s == leaderlease.StatusValid && n.Applied() < index {
		return 0, leaderlease.StatusNone
	}
	return n.Version(key), s
}

// stockReads are reads through raft's own ReadIndex, as an embedder without the
// library makes them.
type stockReads struct {
	seq     uint64
	asked   map[uint64]func()
	waiting []stockRead
}

var errNoOwnTerm = errors.New("leasetest: the leader has committed nothing in its term")

// stockRequest is the length of their requests.
const stockRequest = 8

type stockRead struct {
	index uint64
	serve func()
}

func (n *Node) stockRead(serve func()) {
	if n.reads.asked == nil {
		n.reads.asked = make(map[uint64]func())
	}
	n.reads.seq++
	n.reads.asked[n.reads.seq] = serve
	n.raw.ReadIndex(binary.BigEndian.AppendUint64(nil, n.reads.seq))
}

func (n *Node) stockReadStates(states []raft.ReadState) {
	for _, s := range states {
		if len(s.RequestCtx) != stockRequest {
			continue
		}
		seq := binary.BigEndian.Uint64(s.RequestCtx)
		if serve := n.reads.asked[seq]; serve != nil {
			delete(n.reads.asked, seq)
			n.reads.waiting = append(n.reads.waiting, stockRead{s.Index, serve})
		}
	}
	n.stockApplied()
}

func (n *Node) stockApplied() {
	kept := n.reads.waiting[:0]
	for _, r := range n.reads.waiting {
		if r.index > n.Applied() {
			kept = append(kept, r)
			continue
		}
		r.serve()
	}
	n.reads.waiting = kept
}
