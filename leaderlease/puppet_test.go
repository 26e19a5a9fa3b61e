package leaderlease

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// handClock shows what the test says. It is safe for concurrent use.
type handClock struct {
	reading atomic.Int64
	marker  atomic.Uint64
}

func (c *handClock) Now() core.Instant       { return core.Instant(c.reading.Load()) }
func (c *handClock) Disruptions() uint64     { return c.marker.Load() }
func (c *handClock) Advance(d time.Duration) { c.reading.Add(int64(d)) }

// puppet is one node's Lease. The test plays raft: node 1 of the
// voters 1, 2 and 3, with a tick of 100 ms and a lease of 900 ms, of which
// 180 ms are margin.
type puppet struct {
	*Lease
	t     testing.TB
	clock *handClock

	term uint64
	// last is the index of the newest entry.
	last uint64
	// appended is the last index of the log, handed the newest committed entry that was
	// handed out.
	appended, handed uint64
	// write is the newest MsgStorageAppend that the puppet has added to a Ready.
	write *raftpb.Message
	// leaseBased: raft answers without rounds.
	leaseBased bool
}

const (
	ms = time.Millisecond
	// usable is how long after its probe a puppet's lease serves reads.
	usable = 720 * ms
)

// puppetConfig describes a puppet that has just been bootstrapped: its storage
// holds a snapshot at index 1 and nothing else.
func puppetConfig(tb testing.TB, voters ...uint64) Config {
	tb.Helper()
	if len(voters) == 0 {
		voters = []uint64{1, 2, 3}
	}
	clock := &handClock{}
	clock.Advance(time.Hour)
	return Config{
		Raft: &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: bootstrapped(tb, voters...), Applied: 1,
			MaxSizePerMsg: 1 << 16, MaxInflightMsgs: 64,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
		TickInterval: 100 * ms,
		Clock:        clock,
	}
}

func bootstrapped(tb testing.TB, voters ...uint64) *raft.MemoryStorage {
	tb.Helper()
	s := raft.NewMemoryStorage()
	err := s.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters},
	}})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newPuppet(tb testing.TB, amend ...func(*Config)) *puppet {
	tb.Helper()
	cfg := puppetConfig(tb)
	for _, f := range amend {
		f(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	p := &puppet{Lease: l, t: tb, term: 1, last: 1, appended: 1, handed: 1}
	p.clock, _ = cfg.Clock.(*handClock)
	return p
}

// leading returns a puppet that leads term 2 under a lease renewed right now.
func leading(tb testing.TB, amend ...func(*Config)) *puppet {
	tb.Helper()
	p := newPuppet(tb, amend...)
	p.lead(2)
	p.renew()
	return p
}

// Ready lets the lease see rd with what raft would add to it, and returns the messages
// that may leave.
func (p *puppet) Ready(rd raft.Ready) []*raftpb.Message {
	p.complete(&rd)
	p.Lease.Ready(&rd)
	return slices.DeleteFunc(rd.Messages, func(m *raftpb.Message) bool { return m == p.write })
}

// complete adds the entries that rd commits but the log lacks, those before the first one
// that it hands out, and with AsyncStorageWrites a MsgStorageAppend.
func (p *puppet) complete(rd *raft.Ready) {
	appended := max(p.appended, rd.Snapshot.GetMetadata().GetIndex())
	p.handed = max(p.handed, rd.Snapshot.GetMetadata().GetIndex())
	if n := len(rd.Entries); n > 0 {
		var before []*raftpb.Entry
		for i := appended + 1; i < rd.Entries[0].GetIndex(); i++ {
			e := p.entry(i)
			e.Term = new(p.term - 1)
			before = append(before, e)
		}
		appended = max(appended, rd.Entries[n-1].GetIndex())
		rd.Entries = append(before, rd.Entries...)
	}
	committed := rd.HardState.GetCommit()
	if n := len(rd.CommittedEntries); n > 0 {
		first := rd.CommittedEntries[0].GetIndex()
		var before []*raftpb.Entry
		for i := p.handed + 1; i < first; i++ {
			before = append(before, p.entry(i))
		}
		rd.CommittedEntries = append(before, rd.CommittedEntries...)
		p.handed = rd.CommittedEntries[len(rd.CommittedEntries)-1].GetIndex()
		committed = max(committed, p.handed)
	}
	for i := appended + 1; i <= committed; i++ {
		rd.Entries = append(rd.Entries, p.entry(i))
	}
	p.appended = max(appended, committed)
	if len(rd.ReadStates) > 0 || slices.ContainsFunc(rd.Messages, isAnswer) {
		p.mu.Lock()
		p.mu.checks.answersExpected = !p.leaseBased // by the heartbeats of a round
		p.mu.Unlock()
	}
	idle := len(rd.Entries) == 0 && len(rd.CommittedEntries) == 0 && raft.IsEmptyHardState(rd.HardState) && raft.IsEmptySnap(rd.Snapshot)
	if p.cfg.Raft.AsyncStorageWrites && !idle && !slices.ContainsFunc(rd.Messages, isWrite) {
		p.write = p.message(raftpb.MsgStorageAppend, 1, raft.LocalAppendThread)
		rd.Messages = append(rd.Messages, p.write)
	}
}

func isAnswer(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgReadIndexResp }

func isWrite(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgStorageAppend }

// StartRead starts a read under the lease, StartReadIndex one by a quorum round.
func (p *puppet) StartRead(ctx context.Context, done func(ReadResult, error)) {
	p.Lease.StartRead(ctx, ReadModeLease, done)
}

func (p *puppet) StartReadIndex(ctx context.Context, done func(ReadResult, error)) {
	p.Lease.StartRead(ctx, ReadModeQuorum, done)
}

// ApplyConfState is ApplyConfChange of a wrapped Node, which knows no index.
func (p *puppet) ApplyConfState(cs *raftpb.ConfState) { p.applyNextConfState(cs) }

func (p *puppet) ApplyConfStateAt(index uint64, cs *raftpb.ConfState) {
	p.Lease.ApplyConfState(index, cs)
}

// Incoming passes on a message of which no process is known.
func (p *puppet) Incoming(m *raftpb.Message) bool { return p.Lease.Incoming(m, ProcessID{}) }

// WouldBlock reports whether Ready(rd) would block now.
func (p *puppet) WouldBlock(rd raft.Ready) bool { return p.Lease.WouldBlock(&rd) }

func (p *puppet) hard(commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(p.term), Vote: new(uint64(1)), Commit: new(commit)}
}

// win makes the puppet leader of term, with an entry of its own that is not
// committed yet.
func (p *puppet) win(term uint64) {
	p.term = term
	p.last++
	p.Ready(raft.Ready{
		SoftState: &raft.SoftState{Lead: 1, RaftState: raft.StateLeader},
		HardState: p.hard(p.commit.Load()),
		Entries:   []*raftpb.Entry{p.entry(p.last)},
	})
}

// lead wins term, commits and applies.
func (p *puppet) lead(term uint64) {
	p.win(term)
	p.commitTo(p.last)
	p.Applied(p.last)
}

// follow makes the puppet a follower of leader, 0 if none is known.
func (p *puppet) follow(term, leader uint64) {
	p.term = term
	p.Ready(raft.Ready{
		SoftState: &raft.SoftState{Lead: leader, RaftState: raft.StateFollower},
		HardState: p.hard(p.commit.Load()),
	})
}

func (p *puppet) entry(index uint64) *raftpb.Entry {
	return &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: new(p.term), Index: new(index)}
}

func (p *puppet) change(index uint64) *raftpb.Entry {
	e := p.entry(index)
	e.Type = raftpb.EntryConfChangeV2.Enum()
	return e
}

// commitTo publishes index as committed.
func (p *puppet) commitTo(index uint64) {
	p.last = max(p.last, index)
	p.Ready(raft.Ready{HardState: p.hard(index), CommittedEntries: []*raftpb.Entry{p.entry(index)}})
}

// commitNew publishes a new committed entry and returns its index.
func (p *puppet) commitNew() uint64 {
	p.commitTo(p.last + 1)
	return p.last
}

// commitChanges hands out configuration changes at the next n indexes, in one
// Ready, and returns the index of the last.
func (p *puppet) commitChanges(n int) uint64 {
	var es []*raftpb.Entry
	for range n {
		p.last++
		es = append(es, p.change(p.last))
	}
	p.Ready(raft.Ready{HardState: p.hard(p.last), CommittedEntries: es})
	return p.last
}

// restore publishes a snapshot at index.
func (p *puppet) restore(index uint64, cs *raftpb.ConfState) {
	p.last = max(p.last, index)
	p.Ready(raft.Ready{Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(index), Term: new(p.term), ConfState: cs,
	}}})
}

func (p *puppet) message(t raftpb.MessageType, from, to uint64) *raftpb.Message {
	return &raftpb.Message{Type: t.Enum(), From: new(from), To: new(to), Term: new(p.term)}
}

// heartbeat sends a heartbeat to node 2 through Ready and returns it.
func (p *puppet) heartbeat() *raftpb.Message {
	p.t.Helper()
	msgs := p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeat, 1, 2)}})
	if len(msgs) != 1 {
		p.t.Fatalf("Ready() let %d messages out, want the heartbeat", len(msgs))
	}
	return msgs[0]
}

// granted is node 2's answer to a heartbeat of the puppet, which carried a
// probe.
func (p *puppet) granted(heartbeat *raftpb.Message) *raftpb.Message {
	p.t.Helper()
	probe, err := probeOf(heartbeat)
	if err != nil {
		p.t.Fatalf("probe of a heartbeat: %v", err)
	}
	m := p.message(raftpb.MsgHeartbeatResp, 2, 1)
	attachGrant(m, core.Grant{Sent: probe.Sent, Duration: probe.Duration, Reading: p.cfg.Clock.Now(), Incarnation: 1})
	return m
}

// renew sends a heartbeat and counts its answer at the same instant.
func (p *puppet) renew() { p.Incoming(p.granted(p.heartbeat())) }

// asked takes the read request that waits, nil if there is none.
func (p *puppet) asked() []byte {
	select {
	case rctx := <-p.ReadRequests():
		return rctx
	default:
		return nil
	}
}

// answer lets raft answer a read request with index, after a round.
func (p *puppet) answer(rctx []byte, index uint64) {
	p.Ready(raft.Ready{ReadStates: []raft.ReadState{{Index: index, RequestCtx: rctx}}})
}

// want fails the test unless TryRead says s.
func (p *puppet) want(s core.Status) {
	p.t.Helper()
	if _, got := p.TryRead(); got != s {
		p.t.Fatalf("TryRead() = %v, want %v", got, s)
	}
}

// outcome is what became of a StartRead.
type outcome struct {
	calls int
	read  ReadResult
	err   error
}

func (p *puppet) startRead() *outcome {
	o := &outcome{}
	p.StartRead(context.Background(), func(r ReadResult, err error) { o.calls, o.read, o.err = o.calls+1, r, err })
	return o
}

// readSoon is Read in a goroutine of its own.
func (p *puppet) readSoon(ctx context.Context) <-chan answered {
	c := make(chan answered, 1)
	go func() {
		r, err := p.Read(ctx)
		c <- answered{r, err}
	}()
	return c
}
