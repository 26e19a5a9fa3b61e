package leasetest

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// Options describe a cluster. The zero value of each field is usable.
type Options struct {
	// Voters and Learners are the first configuration; default: voters 1 to 3.
	Voters, Learners []uint64
	// Spares are nodes that run but belong to no configuration yet.
	Spares []uint64
	// TickInterval, ElectionTick and HeartbeatTick default to 100 ms, 10 and 1.
	TickInterval                time.Duration
	ElectionTick, HeartbeatTick int
	// Configure may amend the lease configuration of a node.
	Configure func(id uint64, cfg *leaderlease.Config)
	// Raft may amend the raft configuration of a node.
	Raft func(rc *raft.Config)
	// Node chooses how a node runs.
	Node func(id uint64) NodeOptions
	// NewDisk returns the empty disk of a node; conf is nil for spares.
	// Default: NewMemoryDisk.
	NewDisk func(id uint64, conf *raftpb.ConfState) Disk
	// NewMachine returns the machine of a node that has never run; conf as for
	// NewDisk. A durable one holds it, at index 1 and term 1. Default:
	// NewMemoryMachine.
	NewMachine func(id uint64, conf *raftpb.ConfState) Machine
	// Logger receives raft's log. Default: none.
	Logger raft.Logger
}

func (o Options) withDefaults() Options {
	if len(o.Voters) == 0 {
		o.Voters = []uint64{1, 2, 3}
	}
	if o.TickInterval == 0 {
		o.TickInterval = 100 * time.Millisecond
	}
	if o.ElectionTick == 0 {
		o.ElectionTick = 10
	}
	if o.HeartbeatTick == 0 {
		o.HeartbeatTick = 1
	}
	if o.Raft == nil {
		o.Raft = func(*raft.Config) {}
	}
	if o.Node == nil {
		o.Node = func(uint64) NodeOptions { return NodeOptions{} }
	}
	if o.NewDisk == nil {
		o.NewDisk = func(_ uint64, conf *raftpb.ConfState) Disk { return NewMemoryDisk(conf) }
	}
	if o.NewMachine == nil {
		o.NewMachine = func(uint64, *raftpb.ConfState) Machine { return NewMemoryMachine() }
	}
	if o.Logger == nil {
		o.Logger = noLogger{}
	}
	return o
}

// Cluster is a group of nodes in virtual time: real RawNodes and real Leases,
// with clocks, disks and a network that the test controls. One goroutine runs
// everything; nothing here is safe for concurrent use.
type Cluster struct {
	Net   *Network
	opts  Options
	world *world
	nodes []*Node // by ID

	// OnLeader is called when a node wins an election, OnApply when a node's machine has
	// applied an entry, OnCrash when a process dies, OnRestart when the next process has
	// started. All are optional.
	OnLeader  func(n *Node, term uint64)
	OnApply   func(n *Node, e *raftpb.Entry, made Outcome)
	OnCrash   func(n *Node)
	OnRestart func(n *Node)
	// OnDeliver is called when a message reaches a node, OnAdmit when the node's
	// filter has let it pass to raft, OnReady with the messages of a Ready that
	// the filter lets out. All are optional.
	OnDeliver func(n *Node, m *raftpb.Message)
	OnAdmit   func(n *Node, m *raftpb.Message)
	OnReady   func(n *Node, msgs []*raftpb.Message)
	// OnTick is called before raft ticks, if the filter has not withheld it. Optional.
	OnTick func(n *Node)
}

// New starts a cluster. Raft draws its election timeouts from crypto/rand: pin
// it with testing/cryptotest.SetGlobalRandom for runs that repeat.
func New(opts Options) *Cluster {
	c := &Cluster{opts: opts.withDefaults(), world: &world{}}
	c.Net = newNetwork(c.world, c.deliver)
	conf := &raftpb.ConfState{Voters: c.opts.Voters, Learners: c.opts.Learners}
	for _, id := range slices.Concat(c.opts.Voters, c.opts.Learners) {
		c.add(id, conf)
	}
	for _, id := range c.opts.Spares {
		c.add(id, nil)
	}
	return c
}

func (c *Cluster) add(id uint64, conf *raftpb.ConfState) {
	n := &Node{
		ID: id, cluster: c, Options: c.opts.Node(id),
		// Offsets differ by hours: comparing two nodes' instants must not work.
		Clock: NewClock(c.Now, time.Duration(id)*7*time.Hour),
		disk:  c.opts.NewDisk(id, conf), machine: c.opts.NewMachine(id, conf),
	}
	c.nodes = append(c.nodes, n)
	slices.SortFunc(c.nodes, func(a, b *Node) int { return int(a.ID) - int(b.ID) })
	n.start()
	n.scheduleTicks()
}

// Now returns true time since the start of the run.
func (c *Cluster) Now() time.Duration { return c.world.now }

// After runs f in d of true time from now.
func (c *Cluster) After(d time.Duration, f func()) { c.world.after(d, f) }

// Run lets d of true time pass.
func (c *Cluster) Run(d time.Duration) { c.world.runFor(d) }

// RunUntil lets time pass until done, for at most limit, and reports whether it
// was done.
func (c *Cluster) RunUntil(limit time.Duration, done func() bool) bool {
	end := c.world.now + limit
	for !done() {
		if !c.world.step(end) {
			c.world.now = end
			return done()
		}
	}
	return true
}

// Node returns the node with the given ID, or nil.
func (c *Cluster) Node(id uint64) *Node {
	for _, n := range c.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Nodes returns all nodes by ID.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Leader returns the node that leads the newest term, or nil.
func (c *Cluster) Leader() *Node {
	var leader *Node
	for _, n := range c.nodes {
		if n.Up() && n.role == raft.StateLeader && (leader == nil || n.term > leader.term) {
			leader = n
		}
	}
	return leader
}

// Elect lets id campaign until it leads under a valid lease, and reports
// whether it does within 30 s.
func (c *Cluster) Elect(id uint64) bool {
	n := c.Node(id)
	return c.RunUntil(30*time.Second, func() bool {
		if n.role == raft.StateFollower && !n.Bound() {
			n.Campaign()
		}
		return n.role == raft.StateLeader && (n.lease == nil || n.Valid())
	})
}

func (c *Cluster) deliver(m *raftpb.Message, from leaderlease.ProcessID) {
	n := c.Node(m.GetTo())
	if n == nil || !n.up {
		return
	}
	if c.OnDeliver != nil {
		c.OnDeliver(n, m)
	}
	n.receive(m, from)
}

// noLogger is a raft.Logger that drops all lines. Panic and Fatal panic.
type noLogger struct{}

func (noLogger) Debug(...any)              {}
func (noLogger) Debugf(string, ...any)     {}
func (noLogger) Error(...any)              {}
func (noLogger) Errorf(string, ...any)     {}
func (noLogger) Info(...any)               {}
func (noLogger) Infof(string, ...any)      {}
func (noLogger) Warning(...any)            {}
func (noLogger) Warningf(string, ...any)   {}
func (noLogger) Fatal(v ...any)            { panic(v) }
func (noLogger) Fatalf(f string, v ...any) { panic(raftPanic(f, v...)) }
func (noLogger) Panic(v ...any)            { panic(v) }
func (noLogger) Panicf(f string, v ...any) { panic(raftPanic(f, v...)) }

// Kind says what a node runs.
type Kind uint8

const (
	// Library runs raft with a Lease in front: the default.
	Library Kind = iota
	// Plain runs raft without one; it promises nothing.
	Plain
	// Stock runs raft with its own ReadOnlyLeaseBased: the negative control.
	Stock
)

// NodeOptions choose how a node runs. The zero value is the simplest.
type NodeOptions struct {
	Kind Kind
	// Async uses AsyncStorageWrites.
	Async bool
	// DiskDelay and ApplyDelay return how long the next write and the next
	// batch of entries take. TellDelay, with Async, returns the time until raft is told what
	// is applied. Nil means no time.
	DiskDelay, ApplyDelay, TellDelay func() time.Duration
	// EarlyAdvance, without Async, calls Advance before the entries of the Ready are
	// applied, as etcd's leader does: ApplyConfState comes after it.
	EarlyAdvance bool
	// QueueWhileBusy, without Async, queues messages while a write is under way. Otherwise raft
	// steps them meanwhile, as raft.Node does.
	QueueWhileBusy bool
	// FilterOnArrival calls Incoming when a message arrives, before it queues, as a transport
	// goroutine does. Otherwise the node calls it just before raft's Step.
	FilterOnArrival bool
	// Suspects runs package detector on a node of Kind Library: the node acts upon Gone, and
	// takes turns with others to campaign.
	Suspects bool
	// Learn, with Suspects, is for how long the node watches a leader before it suspects
	// unusually long silence. Zero means that it never does.
	Learn time.Duration
	// Without has the rules that the node omits: negative controls.
	Without Rules
	// Mistake returns how the given process of the node, counted from 1, embeds
	// its Lease wrongly: a negative control. Nil means none.
	Mistake func(process int) Mistake
	// StepDelay, with FilterOnArrival, returns the time between Incoming and raft's Step of a
	// message. Messages of several connections overtake each other
	// there, as they do on a transport's goroutines. Nil means no time.
	StepDelay func(m *raftpb.Message) time.Duration
}

// world is virtual time: one goroutine takes the earliest event, moves time
// there and runs it. Events of the same instant run in the order in which they
// were scheduled, so a run depends on nothing but its seed.
type world struct {
	now    time.Duration // true time since the beginning of the run
	seq    uint64
	events []event // a binary heap
}

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.seq < o.seq
}

// after schedules run in d from now.
func (w *world) after(d time.Duration, run func()) {
	w.seq++
	w.push(event{at: w.now + max(d, 0), seq: w.seq, run: run})
}

// step runs the next event if it is due by limit.
func (w *world) step(limit time.Duration) bool {
	if len(w.events) == 0 || w.events[0].at > limit {
		return false
	}
	e := w.pop()
	w.now = e.at
	e.run()
	return true
}

// runFor runs every event of the next d, and ends there.
func (w *world) runFor(d time.Duration) {
	limit := w.now + d
	for w.step(limit) {
	}
	w.now = limit
}

// push and pop are container/heap without an allocation for each event.
func (w *world) push(e event) {
	w.events = append(w.events, e)
	h, i := w.events, len(w.events)-1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (w *world) pop() event {
	h := w.events
	first, n := h[0], len(h)-1
	h[0], h[n] = h[n], event{}
	h = h[:n]
	w.events = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			return first
		}
		if down+1 < n && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			return first
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
