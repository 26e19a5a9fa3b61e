package bench_test

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// node is one member. Its goroutine owns raft and the storage.
type node struct {
	id    uint64             // immutable
	lease *leaderlease.Lease // immutable, nil without the filter
	reads reads              // immutable
	peers map[uint64]*link   // immutable once the cluster runs

	inbox     chan *raftpb.Message
	campaign  chan struct{}
	readIndex chan []byte
	proposals chan []byte

	leads atomic.Bool
	// version is the state machine: the index of the newest write. It is stored
	// before applied says so.
	version atomic.Uint64
	applied barrier
	writes  waiters

	loop struct {
		raw     *raft.RawNode
		storage *raft.MemoryStorage
		dirty   map[*link]struct{} // links with buffered messages
	}
}

func newNode(id uint64, mode Mode) (*node, error) {
	n := &node{
		id: id, peers: make(map[uint64]*link),
		inbox: make(chan *raftpb.Message, 1<<13), campaign: make(chan struct{}),
		readIndex: make(chan []byte, 1<<10), proposals: make(chan []byte, 1<<10),
	}
	storage, err := newStorage()
	if err != nil {
		return nil, err
	}
	cfg := raftConfig(id, storage)
	n.loop.storage, n.loop.dirty = storage, make(map[*link]struct{})
	if n.loop.raw, err = raft.NewRawNode(cfg); err != nil {
		return nil, err
	}
	if mode == Lease {
		if n.lease, err = leaderlease.New(leaderlease.Config{Raft: cfg, TickInterval: tick}); err != nil {
			return nil, err
		}
	}
	n.reads = newReads(mode, n)
	return n, nil
}

// run is the raft loop.
func (n *node) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var requests <-chan []byte
	if n.lease != nil {
		defer n.lease.Close()
		requests = n.lease.ReadRequests()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			n.tick()
		case <-n.campaign:
			_ = n.loop.raw.Campaign() // elect tries again
		case rctx := <-requests:
			n.loop.raw.ReadIndex(rctx)
		case rctx := <-n.readIndex:
			n.loop.raw.ReadIndex(rctx)
		case data := <-n.proposals:
			n.propose(data)
		case m := <-n.inbox:
			n.step(m)
		}
		n.drain()
		for n.loop.raw.HasReady() {
			n.handleReady()
		}
	}
}

// drain takes what has arrived meanwhile, so that one Ready answers all of it.
func (n *node) drain() {
	for range 1 << 10 {
		select {
		case m := <-n.inbox:
			n.step(m)
		case rctx := <-n.readIndex:
			n.loop.raw.ReadIndex(rctx)
		case data := <-n.proposals:
			n.propose(data)
		default:
			return
		}
	}
}

func (n *node) tick() {
	if n.lease == nil || n.lease.Tick() {
		n.loop.raw.Tick()
	}
}

// step ignores errors as every embedder does: raft drops what it cannot use.
func (n *node) step(m *raftpb.Message) {
	if n.lease == nil || n.lease.Incoming(m, leaderlease.ProcessID{}) {
		_ = n.loop.raw.Step(m)
	}
}

func (n *node) propose(data []byte) {
	if err := n.loop.raw.Propose(data); err != nil {
		n.writes.finish(binary.BigEndian.Uint64(data), 0, err)
	}
}

func (n *node) handleReady() {
	rd := n.loop.raw.Ready()
	if n.lease != nil {
		n.lease.Ready(&rd)
	}
	if rd.SoftState != nil {
		n.leads.Store(rd.RaftState == raft.StateLeader)
	}
	must(n.loop.storage.Append(rd.Entries))
	if !raft.IsEmptyHardState(rd.HardState) {
		must(n.loop.storage.SetHardState(rd.HardState))
	}
	n.send(rd.Messages)
	n.apply(rd.CommittedEntries)
	for _, s := range rd.ReadStates {
		n.reads.answer(s)
	}
	n.loop.raw.Advance(rd)
}

// send writes all messages of a Ready before it flushes, which is one system
// call for each peer.
func (n *node) send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		l := n.peers[m.GetTo()]
		if err := l.write(m); err == nil {
			n.loop.dirty[l] = struct{}{}
		}
	}
	for l := range n.loop.dirty {
		_ = l.out.Flush() // a closed connection: the cluster stops
		delete(n.loop.dirty, l)
	}
}

// entryLen is the length of a proposal: its node, its id, and what makes it as
// long as a small write.
const entryLen = 128

func (n *node) apply(entries []*raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	last := entries[len(entries)-1].GetIndex()
	for _, e := range entries {
		data := e.GetData()
		if len(data) != entryLen {
			continue
		}
		n.version.Store(e.GetIndex())
		if binary.BigEndian.Uint64(data[8:]) == n.id {
			n.writes.finish(binary.BigEndian.Uint64(data), e.GetIndex(), nil)
		}
	}
	n.applied.reach(last)
	if n.lease != nil {
		n.lease.Applied(last)
	}
	if first, err := n.loop.storage.FirstIndex(); err == nil && last > first+1<<13 {
		must(n.loop.storage.Compact(last - 1<<12))
	}
}

func (n *node) write(ctx context.Context) (version uint64, err error) {
	id, done := n.writes.add()
	data := make([]byte, entryLen)
	binary.BigEndian.PutUint64(data, id)
	binary.BigEndian.PutUint64(data[8:], n.id)
	select {
	case n.proposals <- data:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case a := <-done:
		return a.index, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (n *node) read(ctx context.Context) (uint64, error) {
	if err := n.reads.read(ctx); err != nil {
		return 0, err
	}
	return n.version.Load(), nil
}

// must is for errors of a storage in memory, which are bugs.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
