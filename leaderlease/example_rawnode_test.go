package leaderlease_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// Three members of a Raft group run in this process, each in a loop around its
// RawNode. The leader answers reads from its own memory, without a round trip.
// A follower asks the leader for an index, and then answers from its own memory.
func Example_rawNode() {
	group := startGroup()
	defer group.stop()
	ctx := context.Background()

	leader, follower := group.elect(1), group.members[2]
	leader.put("greeting", "hello")

	for _, m := range []*member{leader, follower} {
		lease := m.lease
		// embed:begin last
		r, err := lease.Read(ctx) // outside the loop: then local state may answer
		// embed:end
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("node %d: %q, served by path %v\n", m.id, m.get("greeting"), r.Path)
	}

	// Output:
	// node 1: "hello", served by path lease
	// node 2: "hello", served by path forwarded
}

// tick is the configured TickInterval. The examples tick the loops by hand, faster
// than that, which only makes heartbeats and renewals early.
const tick = time.Second

// member is one node of the group: a RawNode, its log and its state machine, and
// the lease in front of them.
type member struct {
	id    uint64
	group *group
	node  *raft.RawNode
	log   *raft.MemoryStorage
	lease *leaderlease.Lease

	ticks chan struct{}
	inbox chan *raftpb.Message
	calls chan func() // run by the loop, which alone may touch node

	mu      sync.Mutex
	data    map[string]string
	applied atomic.Uint64 // the index that data is at
}

// start opens the member. The log of a new group begins with its members.
func (m *member) start(amend ...func(*leaderlease.Config)) error {
	m.log = raft.NewMemoryStorage()
	err := m.log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
	}})
	if err != nil {
		return err
	}
	config := &raft.Config{
		ID: m.id, Storage: m.log, Applied: 1, ElectionTick: 10, HeartbeatTick: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64, Logger: silent{},
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true, // the lease insists
	}
	// embed:begin
	cfg := leaderlease.Config{TickInterval: tick, Send: m.send}
	// embed:end
	for _, f := range amend {
		f(&cfg)
	}
	// embed:begin
	node, lease, err := leaderlease.NewRawNode(config, cfg)
	// embed:end
	m.node, m.lease = node, lease
	return err
}

// run is the raft loop around the RawNode. Other goroutines make the reads.
func (m *member) run(stop <-chan struct{}) {
	node, lease, ticks, inbox := m.node, m.lease, m.ticks, m.inbox
	for {
		// embed:begin
		select {
		case <-ticks:
			if lease.Tick() {
				node.Tick()
			}
		case msg := <-inbox:
			if lease.Incoming(msg, leaderlease.ProcessID{}) {
				lease.RaiseCommit(node, msg)
				_ = node.Step(msg)
			}
		case id := <-lease.ReadRequests():
			node.ReadIndex(id)
			// embed:end
		case call := <-m.calls:
			call()
		case <-stop:
			return
			// embed:begin
		}
		// embed:end
		for node.HasReady() {
			rd := node.Ready()
			// embed:begin
			lease.Ready(&rd) // before all else; it replaces rd.Messages
			// embed:end
			m.save(rd)
			m.send(rd.Messages)
			m.apply(rd.CommittedEntries)
			node.Advance(rd)
		}
	}
}

// save appends to the log. A real log would make it durable.
func (m *member) save(rd raft.Ready) {
	if err := m.log.Append(rd.Entries); err != nil {
		log.Fatal(err)
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		_ = m.log.SetHardState(rd.HardState) // never fails
	}
}

// send never blocks: raft repeats what is lost.
func (m *member) send(msgs []*raftpb.Message) {
	for _, msg := range msgs {
		select {
		case m.group.members[msg.GetTo()].inbox <- msg:
		default:
		}
	}
}

// apply brings the state machine forward, then tells the lease.
func (m *member) apply(entries []*raftpb.Entry) {
	node, lease := m.node, m.lease
	for _, e := range entries {
		switch e.GetType() {
		case raftpb.EntryNormal:
			key, value, _ := strings.Cut(string(e.GetData()), "=")
			m.mu.Lock()
			m.data[key] = value
			m.mu.Unlock()
		case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
			cc := confChange(e)
			// embed:begin
			lease.ApplyConfState(e.GetIndex(), node.ApplyConfChange(cc)) // for each change, before Advance
			// embed:end
		}
		m.applied.Store(e.GetIndex())
		// embed:begin
		lease.Applied(e.GetIndex()) // after each entry: reads wait for it
		// embed:end
	}
}

// confChange decodes either kind of configuration change.
func confChange(e *raftpb.Entry) raftpb.ConfChangeI {
	v1, v2 := &raftpb.ConfChange{}, &raftpb.ConfChangeV2{}
	var cc raftpb.ConfChangeI = v2
	var message proto.Message = v2
	if e.GetType() == raftpb.EntryConfChange {
		cc, message = v1, v1
	}
	if err := proto.Unmarshal(e.GetData(), message); err != nil {
		log.Fatal(err)
	}
	return cc
}

func (m *member) get(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[key]
}

// do runs f where the RawNode may be touched.
func (m *member) do(f func() error) {
	failed := make(chan error)
	m.calls <- func() { failed <- f() }
	if err := <-failed; err != nil {
		log.Fatal(err)
	}
}

// put replicates a value and waits until this member has applied it.
func (m *member) put(key, value string) {
	m.do(func() error { return m.node.Propose([]byte(key + "=" + value)) })
	for m.get(key) != value || m.applied.Load() < m.lease.Info().Commit {
		time.Sleep(time.Millisecond)
	}
}

// group is all members, by ID.
type group struct {
	members map[uint64]*member
	done    chan struct{}
	loops   sync.WaitGroup
}

// startGroup starts three members and their loops. Amend may change their lease
// configuration.
func startGroup(amend ...func(*leaderlease.Config)) *group {
	g := openGroup(amend...)
	for _, m := range g.members {
		g.loops.Go(func() { m.run(g.done) })
	}
	return g
}

// openGroup starts three members without their loops.
func openGroup(amend ...func(*leaderlease.Config)) *group {
	g := &group{members: map[uint64]*member{}, done: make(chan struct{})}
	for _, id := range []uint64{1, 2, 3} {
		g.members[id] = &member{
			id: id, group: g, data: map[string]string{},
			ticks: make(chan struct{}), inbox: make(chan *raftpb.Message, 1024), calls: make(chan func()),
		}
	}
	for _, m := range g.members {
		if err := m.start(amend...); err != nil {
			log.Fatal(err)
		}
	}
	return g
}

// stop gives all leases up, then ends the loops.
func (g *group) stop() {
	for _, m := range g.members {
		m.lease.Close()
	}
	close(g.done)
	g.loops.Wait()
}

// elect makes a member leader and waits for its lease.
func (g *group) elect(id uint64) *member {
	m := g.members[id]
	m.do(m.node.Campaign)
	m.leads()
	return m
}

// transfer hands leadership from one member to another, and waits for its lease.
func (g *group) transfer(from, to *member) {
	from.do(func() error {
		from.node.TransferLeader(to.id)
		return nil
	})
	to.leads()
}

// leads waits until m leads, and lets it send the heartbeats that renew its
// lease.
func (m *member) leads() {
	m.await(leaderlease.StatusExpired) // m leads, but has no grants yet
	m.ticks <- struct{}{}
	m.await(leaderlease.StatusValid)
}

func (m *member) await(want leaderlease.Status) {
	for m.lease.Info().Status != want {
		time.Sleep(time.Millisecond)
	}
}

// silent is a raft.Logger that discards all lines, except that it panics where raft asks for it.
type silent struct{}

func (silent) Debug(...any)              {}
func (silent) Debugf(string, ...any)     {}
func (silent) Error(...any)              {}
func (silent) Errorf(string, ...any)     {}
func (silent) Info(...any)               {}
func (silent) Infof(string, ...any)      {}
func (silent) Warning(...any)            {}
func (silent) Warningf(string, ...any)   {}
func (silent) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (silent) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (silent) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (silent) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
