package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/hashcheck"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// answer is the answer of a member to a request for its hash.
type answer func(context.Context) (store.Hash, error)

// clockwork returns a hashChecker in virtual time. All members have the hash 1 by default.
func clockwork(n int) (m *hashChecker, answers []answer) {
	answers = make([]answer, n)
	var members []*hashcheck.Member
	for i := range n {
		answers[i] = agrees
		members = append(members, &hashcheck.Member{
			ID: uint64(i + 1), Name: string(rune('a' + i)), Hash: func(ctx context.Context, _ int64) (store.Hash, error) {
				if ctx.Err() != nil {
					return mute(ctx)
				}
				return answers[i](ctx)
			},
		})
	}
	return &hashChecker{
		log: slog.New(slog.DiscardHandler), all: func() []*hashcheck.Member { return members },
		caughtUp: func() bool { return true },
	}, answers
}

func agrees(context.Context) (store.Hash, error) { return store.Hash{Hash: 1, HashRevision: 5}, nil }

func differs(context.Context) (store.Hash, error) { return store.Hash{Hash: 2, HashRevision: 5}, nil }

func gone(context.Context) (store.Hash, error) { return store.Hash{}, errors.New("gone") }

func behind(context.Context) (store.Hash, error) { return store.Hash{}, rpctypes.ErrGRPCCompacted }

// mute does not answer, like a machine that has lost power.
func mute(ctx context.Context) (store.Hash, error) {
	<-ctx.Done()
	return store.Hash{}, grpcstatus.FromContextError(ctx.Err()).Err()
}

// slow answers after d.
func slow(d time.Duration, then answer) answer {
	return func(ctx context.Context) (store.Hash, error) {
		select {
		case <-time.After(d):
			return then(ctx)
		case <-ctx.Done():
			return mute(ctx)
		}
	}
}

// The duration of the initial check, and its result.
func TestHowLongTheInitialCheckTakes(t *testing.T) {
	const patience = 7 * time.Second
	for _, test := range []struct {
		name  string
		set   func(m *hashChecker, a []answer)
		takes time.Duration
		fails string // part of the error
	}{
		{"all agree", func(*hashChecker, []answer) {}, 0, ""},
		{"no other member answers", func(_ *hashChecker, a []answer) { a[1], a[2] = gone, gone }, 0, ""},
		{"most agree, one is behind", func(_ *hashChecker, a []answer) { a[2] = behind }, 0, ""},
		{"it is behind for good", func(_ *hashChecker, a []answer) { a[1], a[2] = behind, behind }, patience, ""},
		{"most do not agree", func(_ *hashChecker, a []answer) { a[1], a[2] = differs, differs }, 0, "InitialCorruptCheck|member remove"},
		{"one of two that answer differs", func(_ *hashChecker, a []answer) { a[1], a[2] = differs, gone }, patience, "no majority of the members agrees"},
		{"the one that settles it comes late", func(_ *hashChecker, a []answer) {
			begun := time.Now()
			a[1], a[2] = differs, func(ctx context.Context) (store.Hash, error) {
				if time.Since(begun) < 3*time.Second {
					return gone(ctx)
				}
				return agrees(ctx)
			}
		}, 3 * time.Second, ""},
		{"the others hash slowly, and agree", func(_ *hashChecker, a []answer) {
			a[1], a[2] = slow(2500*time.Millisecond, agrees), slow(2500*time.Millisecond, agrees)
		}, 2500 * time.Millisecond, ""},
		{"the others hash slowly, and differ", func(_ *hashChecker, a []answer) {
			a[1], a[2] = slow(2500*time.Millisecond, differs), slow(2500*time.Millisecond, differs)
		}, patience, "no majority|member remove"},
		{"one is silent", func(_ *hashChecker, a []answer) { a[1] = mute }, restTime, ""},
		{"one is silent, the other one differs", func(_ *hashChecker, a []answer) { a[1], a[2] = mute, differs }, patience, "no majority"},
		{"one runs out of time by itself", func(_ *hashChecker, a []answer) {
			begun := time.Now()
			a[2] = gone
			a[1] = func(ctx context.Context) (store.Hash, error) {
				if time.Since(begun) < 3*time.Second {
					return store.Hash{}, grpcstatus.Error(codes.DeadlineExceeded, "late")
				}
				return differs(ctx)
			}
		}, patience, "no majority"},
		{"its own log is long", func(m *hashChecker, _ []answer) {
			begun := time.Now()
			m.caughtUp = func() bool { return time.Since(begun) >= 2*time.Second }
		}, 2 * time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, answer := clockwork(3)
				test.set(m, answer)
				begun := time.Now()
				err := m.checkAtStart(t.Context(), patience)
				took := time.Since(begun)
				said := false
				for want := range strings.SplitSeq(test.fails, "|") {
					said = said || err != nil && strings.Contains(err.Error(), want)
				}
				if took < test.takes || took >= test.takes+2*tryInterval || (err != nil) != (test.fails != "") || err != nil && !said {
					t.Errorf("atStart() = %v after %v, want %q after %v", err, took, test.fails, test.takes)
				}
			})
		})
	}
}

// Only the leader compares, once per interval, and raises each alarm once.
func TestLeaderComparesAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, answer := clockwork(3)
		var leads atomic.Bool
		var mode atomic.Int64 // 0: all are sound, 1: c differs, 2: and b has gone
		var asked atomic.Int64
		raised := make(map[uint64]int)
		m.leads = leads.Load
		m.raised = func(id uint64) bool { return raised[id] > 0 }
		m.raise = func(_ context.Context, id uint64) error { raised[id]++; return nil }
		sound := answer[0]
		answer[1] = func(ctx context.Context) (store.Hash, error) {
			if asked.Add(1); mode.Load() == 2 {
				return gone(ctx)
			}
			return sound(ctx)
		}
		answer[2] = func(ctx context.Context) (store.Hash, error) {
			if mode.Load() > 0 {
				return differs(ctx)
			}
			return sound(ctx)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.watch(ctx, time.Minute) }()
		at := func(minutes int) { time.Sleep(time.Duration(minutes) * time.Minute); synctest.Wait() }
		at(3)
		if asked.Load() != 0 {
			t.Errorf("a follower has asked %d times in 3 min, want never", asked.Load())
		}
		leads.Store(true)
		at(3)
		if asked.Load() != 3 || len(raised) != 0 {
			t.Errorf("the leader has asked %d times in 3 min and raised %v, want 3 times and none", asked.Load(), raised)
		}
		mode.Store(1)
		at(3)
		if len(raised) != 1 || raised[3] != 1 {
			t.Errorf("alarms raised = %v, want one of member 3", raised)
		}
		mode.Store(2) // no majority agrees any more
		at(2)
		if len(raised) != 2 || raised[0] != 1 {
			t.Errorf("alarms raised = %v, want one of member 0 besides", raised)
		}
		cancel()
		<-done
	})
}

// A member that never answers does not hide a corrupt one, and leaves time to raise the alarm.
func TestSilentMemberDoesNotHideCorruptOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a := clockwork(5)
		a[1], a[2], a[3], a[4] = mute, differs, slow(time.Second, agrees), slow(time.Second, agrees)
		var raised []uint64
		m.raised = func(uint64) bool { return false }
		m.raise = func(ctx context.Context, id uint64) error { raised = append(raised, id); return ctx.Err() }
		m.check(t.Context())
		if !slices.Equal(raised, []uint64{3}) {
			t.Errorf("alarms raised = %v, want one of member 3", raised)
		}
		// This member is the wrong one.
		a[0], a[2], a[3], a[4] = differs, agrees, agrees, agrees
		raised = nil
		m.raise = func(ctx context.Context, id uint64) error { raised = append(raised, id); return ctx.Err() }
		m.check(t.Context())
		if !slices.Equal(raised, []uint64{1}) {
			t.Errorf("alarms raised = %v, want one of member 1", raised)
		}
	})
}

// A member that differs is removed and its alarm disarmed while another member still hashes. The
// alarm is not raised again.
func TestAMemberRemovedMeanwhileRaisesNoAlarm(t *testing.T) {
	for name, others := range map[string]answer{"the others agree": slow(time.Second, agrees), "another one is gone": slow(time.Second, gone)} {
		synctest.Test(t, func(t *testing.T) {
			m, a := clockwork(3)
			a[1], a[2] = others, differs
			before := m.all()
			begin := time.Now()
			m.all = func() []*hashcheck.Member {
				if time.Since(begin) > 500*time.Millisecond {
					return before[:2]
				}
				return before
			}
			var raised []uint64
			m.raised = func(uint64) bool { return false }
			m.raise = func(_ context.Context, id uint64) error { raised = append(raised, id); return nil }
			m.check(t.Context())
			if len(raised) > 0 {
				t.Errorf("%s: alarms raised = %v, want none", name, raised)
			}
		})
	}
}
