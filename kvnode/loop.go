package kvnode

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// maxTurn is the maximum number of peers' messages that drain steps before the loop asks raft for a Ready. With a
// smaller number, each sync of the log covers fewer entries. With a larger one, the heartbeats may come too late to
// renew the lease.
const maxTurn = 512

// raftLoop is the goroutine that runs raft. No other goroutine touches the RawNode, so raft needs no lock;
// others queue functions for the loop (calls).
//
// The loop waits neither for disk writes nor for a peer or the applier: a wait would delay the heartbeats and lose
// the lease. Two exceptions write the identity file: membership.OwnAdmission before this member takes part,
// and membership.DataLoss when it stops.
type raftLoop struct {
	// Immutable after the start.
	cfg         *Config
	self        uint64
	store       *store.Store
	lease       *leaderlease.Lease
	links       *transport.Transport
	members     *membership.List
	leadership  *leadership
	last        *atomic.Uint64 // Node.last
	raftApplied *atomic.Uint64 // Node.raftApplied
	calls       *calls
	life        *lifecycle.Lifecycle
	log         *slog.Logger
	logLimits   *logLimits
	proposals   *proposals.Pending
	writer      *logWriter
	jobs        *lifecycle.Mailbox[applyJob] // to the applier
	snapshots   *checkpoint.Sender
	transfers   *transfers
	invalid     *invalidEntries

	// Owned by the loop's goroutine. The functions in calls run there, too.
	raw              *raft.RawNode
	queue            *proposals.Queue
	admission        *membership.OwnAdmission
	detector         *detector.Detector
	cadence          cadence
	tickTimer        *time.Timer     // for the next tick
	pollTimer        *time.Timer     // runs while the leader is suspected, or about to be
	proposedTo       leaderTerm      // the leader that may hold proposals of this member (failProposals)
	deathCampaign    *raftpb.Message // raft campaigns with it after a death notice that voided a promise (forceCampaign)
	role             raft.StateType  // as of the newest Ready, like commit
	commit           uint64
	restored         uint64 // the index of the newest snapshot that raft has restored
	bootstrapEntries uint64 // number of entries in the log of a new cluster; 0 after a restart and in a joining member
	// Slices that each turn reuses.
	outbox, responses []*raftpb.Message
	called            []func(*raftLoop)

	// Shared.
	wake lifecycle.Wakeup // of the loop, for local, calls and proposals
	// Each peer has a stream for control messages and one for bulk. When a channel is full, the streams for it are
	// not read (peers.Receive).
	control    chan *raftpb.Message                // all other messages
	bulk       chan *raftpb.Message                // entries and proposals
	local      *lifecycle.Mailbox[*raftpb.Message] // from the log writer and the applier
	quota      *proposals.Quota
	rollback   *membership.RollbackDetector
	dataLoss   *membership.DataLoss
	late       *durations.Histogram           // how late the loop is at its ticks
	progress   *progress                      // noted at each tick
	suspicions atomic.Pointer[detector.Stats] // as of the last tick or change of the leader
	resigned   chan struct{}                  // closed when the loop has ended and its resignation is sent
}

// lateBounds are the buckets of Status.Late.
var lateBounds = []time.Duration{
	time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond,
	100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
}

// begin creates what needs the other fields of the loop, before the loop runs.
func (l *raftLoop) begin() {
	l.queue = proposals.NewQueue(l.self, queueRaft{l}, l.proposals, l.quota)
	l.detector = l.newDetector()
	l.pollTimer.Stop()
	l.progress.note(time.Now())
	l.publishSuspicions()
}

// run is the raft loop. One turn steps what has arrived (a tick, messages, responses of the log writer and the
// applier, calls), handles the Readys, offers proposals to raft, and handles the Readys again. Proposals come last,
// because the Readys before them show whether this member still leads.
func (l *raftLoop) run() {
	l.cadence = newCadence(l.cfg.TickInterval, time.Now())
	l.tickTimer = time.NewTimer(l.cfg.TickInterval)
	defer l.tickTimer.Stop()
	defer l.resign() // also after a panic, which ends the process, and the lease with it (L7)
	l.handleReadys() // of a restart or of bootstrapping
	for {
		select {
		case <-l.life.Stopping():
			return
		case <-l.tickTimer.C:
			l.tickIfDue()
		case rctx := <-l.lease.ReadRequests():
			l.raw.ReadIndex(rctx)
		case m := <-l.control:
			l.step(m)
		case m := <-l.bulk:
			l.step(m)
		case <-l.pollTimer.C:
			l.pollDetector()
		case <-l.wake: // something is in local, calls or proposals
		}
		// If several channels were ready, select took one of them at random. drain takes the rest in order of
		// urgency.
		l.drain()
		if l.cadence.tickNow {
			l.tick()
		}
		// After the Readys, a leader that was just deposed proposes nothing more, and the queue sees the newest
		// commit index.
		l.handleReadys()
		l.queue.Offer()
		l.handleReadys()
	}
}

// drain steps what has arrived, so that one Ready answers all of it.
//
// Local responses come first: they lower what raft counts as uncommitted or not yet applied. Calls are next, because
// the applier waits for one in applyConf. The peers' messages come last, control before bulk: a heartbeat that
// waits behind megabytes of entries costs its sender the lease.
func (l *raftLoop) drain() {
	l.responses = l.local.Drain(l.responses)
	for _, m := range l.responses {
		l.stepLocal(m)
	}
	// A call that pushes another one does not run it here.
	l.called = l.calls.Drain(l.called)
	for _, call := range l.called {
		call(l)
	}
	for range maxTurn {
		select {
		case m := <-l.control:
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

// tickIfDue ticks, unless a heartbeat has postponed the tick since the timer was set (cadence).
func (l *raftLoop) tickIfDue() {
	if wait := time.Until(l.cadence.nextTick()); wait > 0 {
		l.tickTimer.Reset(wait)
		return
	}
	l.tick()
}

// tick advances raft's time, and checks what no event reports: admission, a disk that hangs, and proposals that
// their clients have abandoned.
//
// Raft gets no tick before this member is admitted, since it would campaign. Nor while the lease
// withholds ticks (V5): a sole voter elects itself without a message that the lease could remove.
func (l *raftLoop) tick() {
	if l.lease.Tick() && l.admission.IsOpen() {
		l.raw.Tick()
	}
	now := time.Now()
	l.progress.note(now)
	l.late.Note(max(0, now.Sub(l.cadence.nextTick())))
	l.cadence.ticked(now)
	l.tickTimer.Reset(l.cadence.nextTick().Sub(now))
	l.admission.Tick(now)
	l.carryOut(l.detector.Tick(now, l.detectorView()))
	l.pollSoon(now)
	l.publishSuspicions()
	if l.writer.disk.Tick() {
		l.transfers.stepAside()
	}
	l.queue.Tick()
}

// step steps a message from a peer, after checks that raft does not make: raft panics at an index beyond its log,
// and would vote before this member is admitted. The lease has seen m on arrival (peers.Receive). Raft's errors are
// ignored: the peer sends a dropped message again, or gives up.
func (l *raftLoop) step(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgProp {
		l.stepForwarded(m)
		return
	}
	if !l.admission.IsOpen() {
		return
	}
	if err := l.checkIndex(m); err != nil {
		l.rejectIndex(m, err)
		return
	}
	l.observe(m)
	l.rollback.Observe(m)
	l.lease.RaiseCommit(l.raw, m)
	_ = l.raw.Step(m)
	if m.GetType() == raftpb.MsgVote {
		l.observeRefusal(m)
	}
}

// stepForwarded queues proposals that a follower has forwarded.
func (l *raftLoop) stepForwarded(m *raftpb.Message) {
	err := membership.CheckForwarded(m)
	if err != nil {
		l.invalid.report(err, "from", l.members.Describe(m.GetFrom()))
	}
	if err != nil || !l.admission.IsOpen() {
		l.queue.Drop(m)
		return
	}
	l.queue.AddForwarded(m)
}

// stepLocal steps a response of the log writer or the applier. Raft needs each of them, in order: if one were
// dropped, raft would wait for it forever. So they arrive in a mailbox without a bound.
func (l *raftLoop) stepLocal(m *raftpb.Message) {
	if err := l.raw.Step(m); err != nil {
		l.log.Debug("raft refused a local answer", "type", m.GetType(), "error", err)
		return
	}
	switch entries := m.GetEntries(); {
	case m.GetType() == raftpb.MsgStorageApplyResp && len(entries) > 0:
		l.queue.Unblock() // raft counts entries as uncommitted until they are applied, so it may take proposals again
		l.setApplied(entries[len(entries)-1].GetIndex())
	case m.GetType() == raftpb.MsgStorageAppendResp && m.GetSnapshot() != nil:
		l.setApplied(m.GetSnapshot().GetMetadata().GetIndex())
	}
}

// setApplied records that raft knows index to be applied. The responses for a snapshot and for the entries before it
// may come in either order, so the index never decreases. Checkpoints remove no entry above it from the log, because
// a candidate reads those for configuration changes.
func (l *raftLoop) setApplied(index uint64) { l.raftApplied.Store(max(index, l.raftApplied.Load())) }

// calls queues functions to run on the raft loop, the only goroutine that may touch raft's state.
type calls struct {
	lifecycle.Mailbox[func(*raftLoop)]
	stopping <-chan struct{} // immutable
}

// do runs f on the loop and waits until it has returned. It returns false if the node stops first. f may still run
// then, so it must not share variables with a caller that goes on. The loop itself must not call do.
func (c *calls) do(f func(*raftLoop)) bool {
	_, err := ask(context.Background(), c, func(l *raftLoop) struct{} { f(l); return struct{}{} })
	return err == nil
}

// checkpointLoop implements checkpoint.Loop.
type checkpointLoop struct{ calls *calls }

func (l checkpointLoop) Do(f func(checkpoint.Raft)) bool {
	return l.calls.do(func(l *raftLoop) { f(l.raw) })
}

func (l checkpointLoop) Push(f func(checkpoint.Raft)) {
	l.calls.Push(func(l *raftLoop) { f(l.raw) })
}

// ask runs f on the loop and returns its result. It returns an error if ctx ends or the node stops first; f may still
// run then.
func ask[T any](ctx context.Context, c *calls, f func(*raftLoop) T) (answer T, err error) {
	answers := make(chan T, 1)
	c.Push(func(l *raftLoop) { answers <- f(l) })
	select {
	case answer = <-answers:
		return answer, nil
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	case <-c.stopping:
		return answer, ErrStopped
	}
}

// cadence decides when the raft loop ticks. The loop owns it.
//
// A follower ticks together with its leader's heartbeats, which come at the same interval. So an idle follower
// wakes up once per interval and not twice. A tick waits a little for a heartbeat, and a heartbeat that comes a
// little before the tick makes it come early. An early tick does not move later ones: due advances by one interval.
type cadence struct {
	interval           time.Duration
	due                time.Time // when the next tick is due, without slack
	heartbeatSinceTick bool      // a heartbeat came with the last tick or later: the next tick waits for the next one
	tickNow            bool      // set by a heartbeat: the loop ticks in this turn
}

// slackDivisor: a tick may be early with a heartbeat, or wait for one, by interval/slackDivisor. With more slack, the
// death of a leader is noticed later. With less, a heartbeat that is slightly late or early misses the tick.
const slackDivisor = 5

func newCadence(interval time.Duration, now time.Time) cadence {
	return cadence{interval: interval, due: now.Add(interval)}
}

// nextTick returns when to tick if no heartbeat comes before.
func (c *cadence) nextTick() time.Time {
	if c.heartbeatSinceTick {
		return c.due.Add(c.interval / slackDivisor)
	}
	return c.due
}

// beat records a heartbeat.
func (c *cadence) beat(now time.Time) {
	c.heartbeatSinceTick = true
	c.tickNow = !now.Before(c.due.Add(-c.interval / slackDivisor))
}

// ticked records a tick. Missed ticks are dropped.
func (c *cadence) ticked(now time.Time) {
	waited := c.heartbeatSinceTick && !c.tickNow
	c.due = c.due.Add(c.interval)
	if waited || c.due.Before(now) {
		c.due = now.Add(c.interval)
	}
	c.heartbeatSinceTick, c.tickNow = c.tickNow, false
}
