package leaderlease

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

// wrapped is a member of a group of wrapped raft.Nodes: what an embedder writes
// around one.
type wrapped struct {
	raft.Node
	*Lease
	id    uint64
	group *wrappedGroup
	disk  *raft.MemoryStorage
	async bool

	inbox chan *raftpb.Message
	done  chan struct{}
	loops sync.WaitGroup
	// hold keeps the node from handling Readys while something is in it.
	hold chan struct{}

	mu struct {
		sync.Mutex
		data []string
	}
}

// wrappedGroup is three of them, on in-memory pipes inside a synctest bubble.
type wrappedGroup struct {
	t     *testing.T
	nodes map[uint64]*wrapped
	mu    struct {
		sync.Mutex
		// cut nodes neither send nor receive.
		cut map[uint64]bool
		// sent counts what left the nodes.
		sent map[sentKind]int
	}
}

// sentKind is a type of message of one node.
type sentKind struct {
	from uint64
	typ  raftpb.MessageType
}

const wrapTick = 100 * ms

func newWrappedGroup(t *testing.T, async bool, size uint64) *wrappedGroup {
	t.Helper()
	g := &wrappedGroup{t: t, nodes: map[uint64]*wrapped{}}
	g.mu.cut, g.mu.sent = map[uint64]bool{}, map[sentKind]int{}
	var ids []uint64
	for id := range size {
		ids = append(ids, id+1)
	}
	for _, id := range ids {
		g.nodes[id] = g.start(id, async, bootstrapped(t, ids...))
	}
	for _, n := range g.nodes {
		n.run()
	}
	t.Cleanup(g.stop)
	return g
}

func (g *wrappedGroup) start(id uint64, async bool, disk *raft.MemoryStorage) *wrapped {
	g.t.Helper()
	cfg := &raft.Config{
		ID: id, ElectionTick: 10, HeartbeatTick: 1, Storage: disk, Applied: 1, AsyncStorageWrites: async,
		MaxSizePerMsg: 1 << 16, MaxInflightMsgs: 64, Logger: quietLogger{},
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
	}
	n := &wrapped{
		id: id, group: g, disk: disk, async: async,
		inbox: make(chan *raftpb.Message, 4096), done: make(chan struct{}), hold: make(chan struct{}, 1),
	}
	var err error
	n.Node, n.Lease, err = Wrap(raft.RestartNode(cfg), Config{
		Raft: cfg, TickInterval: wrapTick, Clock: clock.Runtime(), Send: n.send,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func (n *wrapped) run() {
	n.loops.Go(n.loop)
	n.loops.Go(n.receive)
	n.loops.Go(n.tick)
}

func (g *wrappedGroup) stop() {
	for _, n := range g.nodes {
		n.halt()
	}
}

func (n *wrapped) halt() {
	select {
	case <-n.done:
		return
	default:
	}
	close(n.done)
	n.Stop()
	n.loops.Wait()
}

// Status, Ready and Tick exist on both; raft's are the ones the loop uses.
func (n *wrapped) tick() {
	ticker := time.NewTicker(wrapTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.Node.Tick()
		case <-n.done:
			return
		}
	}
}

func (n *wrapped) receive() {
	for {
		select {
		case m := <-n.inbox:
			_ = n.Step(context.Background(), m)
		case <-n.done:
			return
		}
	}
}

func (n *wrapped) loop() {
	for {
		select {
		case rd := <-n.Node.Ready():
			n.hold <- struct{}{}
			if len(rd.ReadStates) > 0 {
				n.group.t.Errorf("node %d is handed %v, want the lease's own answers taken out", n.id, rd.ReadStates)
			}
			if n.async {
				n.dispatch(rd.Messages)
			} else {
				n.handle(rd)
			}
			<-n.hold
		case <-n.done:
			return
		}
	}
}

func (n *wrapped) handle(rd raft.Ready) {
	n.save(rd.Entries, rd.HardState)
	n.send(rd.Messages)
	n.apply(rd.CommittedEntries)
	n.Advance()
}

// dispatch plays both storage threads.
func (n *wrapped) dispatch(msgs []*raftpb.Message) {
	for _, m := range msgs {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			n.save(m.GetEntries(), &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit})
			n.respond(m.GetResponses())
		case raft.LocalApplyThread:
			n.apply(m.GetEntries())
			n.respond(m.GetResponses())
		default:
			n.send([]*raftpb.Message{m})
		}
	}
}

func (n *wrapped) respond(msgs []*raftpb.Message) {
	for _, m := range msgs {
		if m.GetTo() == n.id {
			_ = n.Step(context.Background(), m)
			continue
		}
		n.send([]*raftpb.Message{m})
	}
}

func (n *wrapped) save(entries []*raftpb.Entry, hard *raftpb.HardState) {
	if err := n.disk.Append(entries); err != nil {
		panic(err)
	}
	if !raft.IsEmptyHardState(hard) {
		if err := n.disk.SetHardState(hard); err != nil {
			panic(err)
		}
	}
}

func (n *wrapped) apply(entries []*raftpb.Entry) {
	for _, e := range entries {
		switch e.GetType() {
		case raftpb.EntryNormal:
			n.mu.Lock()
			n.mu.data = append(n.mu.data, string(e.GetData()))
			n.mu.Unlock()
		case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
			cc := &raftpb.ConfChangeV2{}
			if err := proto.Unmarshal(e.GetData(), cc); err != nil {
				panic(err)
			}
			n.ApplyConfChange(cc)
		}
		n.Applied(e.GetIndex())
	}
}

// last is the newest data that the node has applied.
func (n *wrapped) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.data[len(n.mu.data)-1]
}

func (n *wrapped) send(msgs []*raftpb.Message) {
	g := n.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range msgs {
		g.mu.sent[sentKind{n.id, m.GetType()}]++
		to := g.nodes[m.GetTo()]
		if to == nil || g.mu.cut[n.id] || g.mu.cut[to.id] {
			continue
		}
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		c := &raftpb.Message{}
		if err := proto.Unmarshal(b, c); err != nil {
			panic(err)
		}
		to.inbox <- c
	}
}

func (g *wrappedGroup) cut(id uint64, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.cut[id] = cut
}

func (g *wrappedGroup) sent(from uint64, typ raftpb.MessageType) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.sent[sentKind{from, typ}]
}

// leads waits until the node leads under a valid lease.
func (g *wrappedGroup) leads(id uint64) {
	g.t.Helper()
	for range 200 {
		if g.nodes[id].Valid() {
			return
		}
		time.Sleep(wrapTick)
	}
	g.t.Fatalf("node %d does not lead under a lease: %+v", id, g.nodes[id].Lease.Info())
}

// Valid reports whether the node would serve a lease read now.
func (n *wrapped) Valid() bool {
	_, s := n.TryRead()
	return s == core.Valid
}

func (g *wrappedGroup) elect(id uint64) {
	g.t.Helper()
	if err := g.nodes[id].Campaign(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.leads(id)
}

// quietLogger says nothing, and panics where raft does.
type quietLogger struct{}

func (quietLogger) Debug(...any)              {}
func (quietLogger) Debugf(string, ...any)     {}
func (quietLogger) Error(...any)              {}
func (quietLogger) Errorf(string, ...any)     {}
func (quietLogger) Info(...any)               {}
func (quietLogger) Infof(string, ...any)      {}
func (quietLogger) Warning(...any)            {}
func (quietLogger) Warningf(string, ...any)   {}
func (quietLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (quietLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (quietLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (quietLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
