package kvnode

import (
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/leaderlease/detector"
)

// maxTurn bounds how many messages are taken before raft is asked what is ready. Fewer: each
// sync of the log carries less, and a busy member needs more of them. More: a tick waits
// behind them, heartbeats go out late, and the lease ends before they have renewed it.
const maxTurn = 512

// raftLoop is raft, what it is told, and what becomes of what it says.
type raftLoop struct {
	// Immutable after the start.
	*parts
	proposals *proposals.Pending
	appends   appends
	jobs      *lifecycle.Mailbox[applyJob] // to the applier
	snapshots *snapshots
	transfers *transfers

	// Owned by the loop: run, what it calls, and the functions that are put into calls. No
	// lock guards any of it.
	raw          *raft.RawNode
	admission    *admission.State
	detector     *detector.Detector
	cadence      cadence
	ticker       *time.Timer // for the next tick
	poll         *time.Timer // runs while the leader is suspected, or about to be
	handed       handed
	afterDeath   *raftpb.Message // of the newest obituary that has voided a promise
	queue        *proposals.Queue
	role         raft.StateType // as of the newest Ready, as commit is
	commit       uint64
	restored     uint64 // index of the newest snapshot that raft has switched to: older changes are in it
	firstEntries uint64 // of the initial cluster, which begin the log; 0 on a restart
	laggards     laggards
	// Slices that are used again in each turn.
	outbox, responses []*raftpb.Message
	called            []func(*raftLoop)

	// Shared: channels and boxes that anybody puts into, and what has a lock of its own.
	wake lifecycle.Wakeup
	// Two, as peers have a stream for each: one that is full holds up the goroutine that reads
	// its stream (peers.Receive), and so its sender, and not the other stream.
	urgent  chan *raftpb.Message               // from peers: heartbeats, votes and answers
	bulk    chan *raftpb.Message               // from peers: entries and proposals
	local   lifecycle.Mailbox[*raftpb.Message] // from the appender and the applier
	quota   *proposals.Quota
	witness witness
	follows atomic.Uint64        // whom raft takes for the leader, before the lease hears of it
	late    *durations.Histogram // how late the loop is at its ticks
	// progress is noted at each tick.
	progress progress
	awaited  atomic.Pointer[[]string] // who has not let this member in yet
	// resigned is closed when the loop has ended, and whoever it was handed to has its last word.
	resigned chan struct{}
	// suspicions are the detector's, as of the last tick.
	suspicions atomic.Pointer[detector.Stats]
}

// lateBounds are those of Status.Late. A loop that is late waits for a processor, for memory,
// or for something that it should not wait for.
var lateBounds = []time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
}

// run is the raft loop. Nobody else touches the RawNode, so raft needs no lock, and what
// others want of it they put into l.calls.
//
// One turn takes whatever has arrived (a tick, messages, answers of the appender and the
// applier, calls) and asks raft once what to do about all of it. Proposals come last: what
// raft has just learnt says whether this member still leads. The loop never waits for a
// disk, a peer or the applier; if it did, heartbeats would be late by as much, and the
// lease would be lost.
func (l *raftLoop) run() {
	l.cadence = newCadence(l.cfg.TickInterval, time.Now())
	l.ticker = time.NewTimer(l.cfg.TickInterval)
	defer l.ticker.Stop()
	defer l.resign() // whatever ends the loop; the process ends with it, and the lease (L7)
	l.handleReadys() // what a restart or bootstrapping has left to do
	for {
		select {
		case <-l.life.Stopping():
			return
		case <-l.ticker.C:
			l.tickSoon()
		case rctx := <-l.lease.ReadRequests():
			// One round is under way at a time, shared by all reads that wait (leaderlease).
			l.raw.ReadIndex(rctx)
		case m := <-l.urgent:
			l.step(m)
		case m := <-l.bulk:
			l.step(m)
		case <-l.poll.C:
			l.askDetector()
		case <-l.wake: // something is in local, calls or the box of proposals
		}
		// The select has taken one message, by chance where several were there. The order of what
		// is left is drain's.
		l.drain()
		if l.cadence.now {
			l.tick()
		}
		// First the news. A leader that has been deposed by it proposes nothing any more, and
		// what is committed now makes room for what is parked.
		l.handleReadys()
		l.queue.Offer()
		l.handleReadys()
	}
}

// drain takes what has arrived meanwhile, so that one Ready answers all of it.
//
// Local answers come first: they free what raft counts as under way (inflight entries, bytes
// that are not committed), and they cannot be refused or dropped. Then calls, of which
// applyConf's holds up the applier. The peers' messages come last, the urgent ones before the
// bulk: a heartbeat that waits behind megabytes of entries costs its sender the lease.
func (l *raftLoop) drain() {
	l.responses = l.local.Drain(l.responses)
	for _, m := range l.responses {
		l.stepLocal(m)
	}
	// All that were there when it was taken: a call that puts another one does not run it here.
	l.called = l.calls.Drain(l.called)
	for _, call := range l.called {
		call(l)
	}
	for range maxTurn {
		select {
		case m := <-l.urgent:
			l.step(m)
			continue
		default:
		}
		select {
		case m := <-l.bulk:
			l.step(m)
			continue
		default:
		}
		break
	}
}

// tickSoon ticks if it is time, which is later where a heartbeat has come since the timer was set.
func (l *raftLoop) tickSoon() {
	if wait := time.Until(l.cadence.wake()); wait > 0 {
		l.ticker.Reset(wait)
		return
	}
	l.tick()
}

// tick lets time pass for raft, and looks at what nobody else reports: a member that waits to
// be let in, a disk that hangs, proposals whose clients have gone.
//
// Time does not pass for raft if the lease withholds the tick: raft would elect a member that is a quorum by
// itself without asking anybody, bound or not (V5). A member that too few have admitted does
// not tick either, and so it does not campaign.
func (l *raftLoop) tick() {
	if l.lease.Tick() && l.admission.IsOpen() {
		l.raw.Tick()
	}
	// Admission goes first: standing asks it, and to a detector a member that is not open is away.
	now := time.Now()
	l.progress.note(now)
	l.late.Note(max(0, now.Sub(l.cadence.wake())))
	l.cadence.ticked(now)
	l.ticker.Reset(l.cadence.wake().Sub(now))
	l.do(l.admission.Tick(now))
	l.elect(l.detector.Tick(now, l.standing()))
	l.pollSoon(now)
	l.showSuspicions()
	// What the others commit without this disk raft does not hand out here, so a leader would answer
	// nobody: it transfers leadership.
	if l.appends.disk.check() {
		l.transfers.stepAside()
	}
	l.queue.Tick()
}

// step ignores raft's errors as every embedder does: raft drops what it cannot use, and its
// peer sends it again or gives up. The lease has seen m on arrival (peers.Receive), on the
// goroutine of the connection: a promise counts from then, however long m waits for the loop.
//
// Whatever reaches raft from a peer passes here, and nothing before IsOpen and plausible: raft
// panics on an index beyond its log, and answers votes before this member may vote.
func (l *raftLoop) step(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgProp {
		l.forwarded(m)
		return
	}
	if !l.admission.IsOpen() {
		return // a first start that nobody has admitted yet
	}
	if err := l.plausible(m); err != nil {
		l.implausible(m, err)
		return
	}
	l.hear(m)
	l.witness.answer(m)
	l.lease.LearnCommit(l.raw, m)
	_ = l.raw.Step(m)
	if m.GetType() == raftpb.MsgVote {
		l.refused(m)
	}
}

// forwarded takes a follower's proposals.
func (l *raftLoop) forwarded(m *raftpb.Message) {
	if err := confchange.CheckForwarded(m); err != nil {
		l.malformed(err, "from", l.book.nameOf(m.GetFrom()))
		l.queue.Drop(m)
		return
	}
	if !l.admission.IsOpen() {
		l.queue.Drop(m)
		return
	}
	l.queue.Forward(m)
}

// stepLocal steps what the appender and the applier answer, and notes what raft learns by it
// that others go by. Raft counts on each of these
// answers, in their order: without one it would wait for ever for what it takes to be under
// way. So they come through a box without a bound, and not through a channel.
func (l *raftLoop) stepLocal(m *raftpb.Message) {
	if err := l.raw.Step(m); err != nil {
		l.log.Debug("raft refused a local answer", "type", m.GetType(), "error", err)
		return
	}
	switch entries := m.GetEntries(); {
	case m.GetType() == raftpb.MsgStorageApplyResp && len(entries) > 0:
		l.queue.Unblock() // less is uncommitted, as raft counts it
		l.tell(entries[len(entries)-1].GetIndex())
	case m.GetType() == raftpb.MsgStorageAppendResp && m.GetSnapshot() != nil:
		l.tell(m.GetSnapshot().GetMetadata().GetIndex())
	}
}

// tell notes that raft knows index to be applied. It never sinks: answers for a snapshot and
// for entries before it may come in either order. Checkpoints compact the log up to there and
// no further, since a candidate scans what is behind it for changes of the configuration.
func (l *raftLoop) tell(index uint64) { l.told.Store(max(index, l.told.Load())) }
