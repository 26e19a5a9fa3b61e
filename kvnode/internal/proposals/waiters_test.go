package proposals

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leadership is a fixed Leadership.
type leadership struct{ leader, term uint64 }

func (l *leadership) Term() uint64   { return l.term }
func (l *leadership) Leader() uint64 { return l.leader }

// newPending returns a Pending with those limits, at a member that knows leader 1 of term 7.
func newPending(maxCount int, maxBytes int64) *Pending {
	log := slog.New(slog.DiscardHandler)
	return NewPending(Config{
		MaxRequestBytes: 1000, MaxCount: maxCount, MaxBytes: maxBytes, ElectionTicks: 2, Leadership: &leadership{1, 7},
		Bound: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Millisecond, ErrTimeout)
		},
		DiskFull: func() bool { return false }, Lifecycle: lifecycle.New(log), Wakeup: lifecycle.NewWakeup(), Logger: log,
	})
}

func sized(id uint64, bytes int) proposal {
	return proposal{id: id, entry: &raftpb.Entry{Data: make([]byte, bytes)}}
}

// attempt adds a proposal that raft has taken. It is repeatable if term is not 0.
func attempt(p *Pending, id, term uint64) *waiter {
	q := proposal{id: id, entry: &raftpb.Entry{Data: []byte{1}}, repeatable: term != 0, requiredTerm: term}
	w, _ := p.add(q)
	p.markProposed([]proposal{q})
	return w
}

// waits reports whether w has no outcome.
func waits(w *waiter) bool { return len(w.done) == 0 }

func wantErr(t *testing.T, what string, w *waiter, want error) {
	t.Helper()
	if waits(w) {
		t.Fatalf("%s has no outcome, want %v", what, want)
	}
	if o := <-w.done; !errors.Is(o.err, want) {
		t.Errorf("outcome of %s = %v, want %v", what, o.err, want)
	}
}

func ids(qs []proposal) (all []uint64) {
	for _, q := range qs {
		all = append(all, q.id)
	}
	return all
}

func TestPendingIsBounded(t *testing.T) {
	p := newPending(2, 100)
	for id := range uint64(2) {
		if _, err := p.add(sized(id+1, 40)); err != nil {
			t.Fatalf("add(%d) = %v, want nil", id+1, err)
		}
	}
	if _, err := p.add(sized(3, 1)); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of a third proposal = %v, want ErrTooManyRequests", err)
	}
	p.Finish(store.Result{ID: 1})
	if _, err := p.add(sized(3, 61)); !errors.Is(err, ErrTooManyRequests) {
		t.Errorf("add() of 61 bytes beside 40 = %v, want ErrTooManyRequests", err)
	}
	if _, err := p.add(sized(3, 60)); err != nil {
		t.Errorf("add() of 60 bytes beside 40 = %v, want nil", err)
	}
	p.remove(2)
	p.remove(3)
	if s := p.Stats(); s.Waiting != 0 || s.WaitingBytes != 0 {
		t.Errorf("Stats() = %+v, want no waiters", s)
	}
}

// While the loop is delayed, by a disk for example, overdue proposals are not kept: clients come again, and
// the limits count only proposals with a waiter.
func TestOverdueProposalsAreNotKept(t *testing.T) {
	p := newPending(10, 1000)
	for range 20 {
		put := &store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k")}}}
		if _, err := p.Submit(t.Context(), put); !errors.Is(err, ErrTimeout) {
			t.Errorf("Submit() without a loop = %v, want ErrTimeout", err)
		}
	}
	if n, s := p.submitted.Len(), p.Stats(); n != 0 || s.Waiting != 0 || s.Failed != 20 {
		t.Errorf("%d proposals are kept, and Stats() = %+v, want none, and 20 failures", n, s)
	}
}

func TestSubmitRefuses(t *testing.T) {
	p := newPending(10, 1000)
	large := &store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Value: make([]byte, 1000)}}}
	if _, err := p.Submit(t.Context(), large); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Submit() of more than MaxRequestBytes = %v, want ErrTooLarge", err)
	}
	p.cfg.DiskFull = func() bool { return true }
	if _, err := p.Submit(t.Context(), &store.Command{}); !errors.Is(err, ErrDiskFull) {
		t.Errorf("Submit() on a full disk = %v, want ErrDiskFull", err)
	}
}

// The error says whether the command may take effect.
func TestTimeoutErrors(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	overdue, cancel := context.WithTimeoutCause(t.Context(), 0, ErrTimeout)
	defer cancel()
	deadline, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, tc := range []struct {
		name     string
		ctx      context.Context
		leader   uint64
		proposed bool
		want     error
	}{
		{"the client has gone", canceled, 0, false, context.Canceled},
		{"no leader", overdue, 0, false, ErrNoLeader},
		{"no leader, and raft has taken it", overdue, 0, true, ErrTimeout},
		{"a leader", overdue, 1, false, ErrTimeout},
		{"the client's own deadline", deadline, 1, true, context.DeadlineExceeded},
	} {
		p := newPending(1, 1)
		p.cfg.Leadership = &leadership{tc.leader, 7}
		if err := p.timeoutError(tc.ctx, &waiter{proposed: tc.proposed}); !errors.Is(err, tc.want) {
			t.Errorf("%s: timeoutError() = %v, want %v", tc.name, err, tc.want)
		}
	}
}

// Only proposals that raft has taken are in doubt when the leader changes.
func TestLeaderChangeFailsProposed(t *testing.T) {
	p := newPending(10, 100)
	taken, _ := p.add(sized(1, 1))
	dropped, _ := p.add(sized(2, 1))
	waiting, _ := p.add(sized(3, 1))
	p.markProposed([]proposal{{id: 1}, {id: 2}})
	p.unmarkProposed([]proposal{{id: 2}})
	p.FailProposed()
	wantErr(t, "a proposal that raft has taken", taken, ErrLeaderChanged)
	if !waits(dropped) || !waits(waiting) {
		t.Error("a proposal that raft has not taken has an outcome, want it to wait")
	}
}

// A new term fails proposals without a required term, as they may take effect in it, and no others.
func TestNewTermFailsUnfenced(t *testing.T) {
	p := newPending(10, 100)
	bare, fenced := attempt(p, 1, 0), attempt(p, 2, 7)
	p.FailUnrepeatable()
	wantErr(t, "a proposal without a required term", bare, ErrLeaderChanged)
	if !waits(fenced) {
		t.Error("a proposal with a required term has an outcome, want it to wait")
	}
	p.FailProposed()
	wantErr(t, "a proposal of a leader that has lost its quorum", fenced, ErrLeaderChanged)
}

func TestFailWithoutLeader(t *testing.T) {
	p := newPending(10, 100)
	patient, _ := p.add(sized(1, 1))
	impatient := sized(2, 1)
	impatient.failWithoutLeader = true
	w, _ := p.add(impatient)
	for range p.cfg.ElectionTicks {
		p.tickLeaderless()
	}
	if !waits(w) {
		t.Error("FailWithoutLeader fails a proposal before an election timeout")
	}
	p.tickLeaderless()
	wantErr(t, "a proposal with FailWithoutLeader", w, ErrNoLeader)
	if !waits(patient) {
		t.Error("a proposal without FailWithoutLeader has an outcome, want it to wait")
	}
}

// Once an entry of a term is applied, attempts of earlier terms are proposed again, in order.
func TestVoidAttemptsAreProposedAgain(t *testing.T) {
	p := newPending(10, 100)
	for id := uint64(6); id > 2; id-- {
		attempt(p, id, 7)
	}
	current, dropped := attempt(p, 2, 8), attempt(p, 1, 7)
	p.unmarkProposed([]proposal{dropped.proposal})
	p.TermReached(8)
	again := p.submitted.Drain(nil)
	if got, want := ids(again), []uint64{3, 4, 5, 6}; !slices.Equal(got, want) {
		t.Fatalf("TermReached(8) submits %v again, want %v", got, want)
	}
	if !waits(current) || !waits(dropped) {
		t.Error("a proposal of this term, or one that raft dropped, has an outcome")
	}
	if again := p.takeVoid(8); len(again) != 0 {
		t.Errorf("takeVoid(8) again = %v, want none: raft has not taken them again", ids(again))
	}
	p.Finish(store.Result{ID: 3, Err: store.ErrFenced})
	if n := p.Stats().Waiting; n != 6 {
		t.Errorf("%d of 6 waiters are left: a void attempt has ended the wait for the next one", n)
	}
	p.markProposed(again[:1])
	p.Finish(store.Result{ID: 3})
	if s := p.Stats(); s.Waiting != 5 || s.Voided != 4 {
		t.Errorf("Stats() after an attempt took effect = %+v, want 5 waiters and 4 void attempts", s)
	}
}

// A proposal that a leader has made for its own term (ProposeFenced) is not proposed in another one.
func TestForeignRequiredTermIsAnOutcome(t *testing.T) {
	p := newPending(10, 100)
	w := attempt(p, 1, 0)
	p.Finish(store.Result{ID: 1, Err: store.ErrFenced})
	if waits(w) {
		t.Error("a proposal with a required term of its client's waits after ErrFenced, want the outcome")
	}
}

// A snapshot may contain an attempt that raft had taken when the snapshot began to arrive, and none that raft
// took later, even before the snapshot was restored.
func TestAttemptsInASnapshotAreInDoubt(t *testing.T) {
	p := newPending(10, 100)
	before, dropped := attempt(p, 1, 7), attempt(p, 3, 7)
	p.SnapshotArriving()
	attempt(p, 4, 7)
	p.SnapshotRestored()
	attempt(p, 2, 7)
	p.unmarkProposed([]proposal{dropped.proposal})
	p.markProposed([]proposal{dropped.proposal})
	if !waits(before) {
		t.Error("an attempt has an outcome at once, want it to wait: it may be applied after the snapshot")
	}
	if got, want := ids(p.takeVoid(8)), []uint64{2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("takeVoid(8) = %v, want %v", got, want)
	}
	wantErr(t, "an attempt that a snapshot may contain", before, ErrLeaderChanged)
}

// A snapshot that did not arrive completely, or that raft refused, replaces nothing.
func TestSnapshotNotRestoredLeavesNoDoubt(t *testing.T) {
	p := newPending(10, 100)
	w := attempt(p, 1, 7)
	p.SnapshotArriving()
	if again := p.takeVoid(8); len(again) != 1 || !waits(w) {
		t.Errorf("takeVoid(8) = %v, want the proposal", ids(again))
	}
}

// A claimed proposal has the outcome that its claimer sends, even if the leader changes.
func TestClaim(t *testing.T) {
	p := newPending(10, 100)
	w := attempt(p, 1, 0)
	send := p.Claim(1)
	p.FailProposed()
	send(store.Result{ID: 1}, nil)
	wantErr(t, "a claimed proposal", w, nil)
	p.Claim(2)(store.Result{}, nil) // without a waiter it does nothing
}

// Raft and the transport may hold the entry of an earlier attempt.
func TestEachAttemptHasItsOwnEntry(t *testing.T) {
	data, err := (&store.Command{ID: 300, RequiredTerm: 7}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	first := proposal{id: 300, entry: &raftpb.Entry{Data: data}, repeatable: true, requiredTerm: 7}
	was := string(data)
	if same := first.forTerm(7); same.entry != first.entry {
		t.Error("forTerm() of the same term copies the entry, want the same one")
	}
	next := first.forTerm(300)
	c, err := store.DecodeCommand(next.entry.GetData())
	if err != nil || c.ID != 300 || c.RequiredTerm != 300 || next.requiredTerm != 300 || next.entry == first.entry || string(first.entry.GetData()) != was {
		t.Errorf("forTerm(300) = %+v with %+v, %v, and the first entry is %x, want %x", next, c, err, first.entry.GetData(), was)
	}
	bare := proposal{id: 1, entry: first.entry}
	if bare.forTerm(8) != bare {
		t.Error("forTerm() changes a proposal that is not repeatable")
	}
}
