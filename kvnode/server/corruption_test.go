package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/hashcheck"
	"github.com/leaderlease/go/kvnode/store"
)

// corrupt changes a key of a store behind raft's back.
func corrupt(t *testing.T, s *Server) {
	t.Helper()
	data, err := (&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("key"), Value: []byte("bad")}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	st := s.Node().Store()
	if r := st.Apply(st.Applied()+1, s.Node().Term(), data); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// The leader finds the member whose data differs, and the alarm that it raises
// stops writes until somebody has looked.
func TestCorruptCheck(t *testing.T) {
	all := trio(t)
	lead, others := leader(t, all)
	c := client(t, lead)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	check := lead.checked()
	check.check(t.Context())
	if alarms := lead.Node().Store().Alarms(); len(alarms) != 0 {
		t.Fatalf("alarms = %v in a sound cluster, want none", alarms)
	}
	corrupt(t, others[1])
	if _, err := c.Put(t.Context(), "other", "value"); err != nil {
		t.Fatal(err)
	}
	check.check(t.Context())
	alarms := lead.Node().Store().Alarms()
	if len(alarms) != 1 || alarms[0].GetAlarm() != pb.AlarmType_CORRUPT || alarms[0].GetMemberID() != others[1].Node().ID() {
		t.Fatalf("alarms = %v, want CORRUPT of %x", alarms, others[1].Node().ID())
	}
	if _, err := c.Put(t.Context(), "key", "value"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("Put() = %v under the alarm, want %v", err, rpctypes.ErrCorrupt)
	}
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Errorf("Put() = %v once it is disarmed, want nil", err)
	}
}

// again starts a member anew on its addresses, without a checkpoint of what it has.
func again(t *testing.T, s *Server, change func(*Config)) (*Server, error) {
	t.Helper()
	cfg := s.cfg
	cfg.Node.Listener, cfg.ClientListener, cfg.HTTPListener = nil, nil, nil
	change(&cfg)
	next, err := Start(cfg)
	if err == nil {
		t.Cleanup(func() { _ = next.Stop(context.Background()) })
	}
	return next, err
}

// A member whose checkpoint holds other data than the others serves nobody, and
// ends with what to do; one that is sound serves, whoever else is not.
func TestInitialCorruptCheck(t *testing.T) {
	all := trio(t, onePort)
	lead, others := leader(t, all)
	c := client(t, lead)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	bad, good := others[0], others[1]
	ask := func(c *Config) { c.InitialCorruptCheck = true }
	corrupt(t, bad)
	if _, err := c.Put(t.Context(), "other", "value"); err != nil { // the log comes to what the store has
		t.Fatal(err)
	}
	for deadline := time.Now().Add(15 * time.Second); bad.Node().Status().Commit < bad.Node().Store().Applied(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("15s have passed, want the log of the corrupt member to be as long as its store is new")
		}
	}
	if err := bad.Node().Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, bad)
	failed, err := again(t, bad, ask)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the corrupt member has ended", failed.Done())
	if err := failed.Err(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), bad.cfg.Node.Name+" (") || !strings.Contains(err.Error(), "member remove") {
		t.Errorf("Err() = %v, want %v with its name and the remedy", err, ErrCorrupt)
	}
	if failed.isReady() {
		t.Error("the corrupt member was ready")
	}
	stop(t, failed)

	// Without the check it serves, and most members agree that it is the bad one.
	unchecked, err := again(t, bad, func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the corrupt member is ready", unchecked.Ready())
	stop(t, good)
	last, err := again(t, good, ask)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a sound member beside a corrupt one is ready", last.Ready())
}

// A cluster that starts all at once with the check does start, and while a member
// compares it answers what the others need for theirs, and nothing else.
func TestAllStartAtOnceWithTheCheck(t *testing.T) {
	all := trio(t, onePort)
	for _, s := range all {
		stop(t, s)
	}
	var next []*Server
	for _, s := range all {
		n, err := again(t, s, func(c *Config) { c.InitialCorruptCheck = true })
		if err != nil {
			t.Fatal(err)
		}
		next = append(next, n)
	}
	for _, s := range next {
		await(t, s.cfg.Node.Name+" is ready", s.Ready())
	}
	keepAlivesPass(t, next)
	next[0].gate.shut.Store(true)
	c := client(t, next[0])
	if h, err := c.HashKV(t.Context(), next[0].ClientAddrs()[0], 0); err != nil || h.Hash == 0 {
		t.Errorf("HashKV() = %v, %v behind the gate, want a hash", h, err)
	}
	conn := dial(t, next[0])
	if _, err := pb.NewKVClient(conn).Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Serializable: true}); err == nil || !strings.Contains(err.Error(), checking) {
		t.Errorf("Range() = %v behind the gate, want %q", err, checking)
	}
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(t.Context(), &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), checking) {
		t.Errorf("Snapshot() = %v behind the gate, want %q", err, checking)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if code, body := page(t, next[0], path); code != want {
			t.Errorf("GET %s = %d %s behind the gate, want %d", path, code, body, want)
		}
	}
}

// keepAlivesPass checks that TTL leases live on while members compare, whoever leads
// meanwhile: it counts the time of them all.
func keepAlivesPass(t *testing.T, all []*Server) {
	t.Helper()
	lease, err := client(t, all[0]).Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.gate.shut.Store(true)
	}
	for _, s := range all {
		stream, err := pb.NewLeaseClient(dial(t, s)).LeaseKeepAlive(t.Context())
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)})
		}
		var got *pb.LeaseKeepAliveResponse
		if err == nil {
			got, err = stream.Recv()
		}
		if err != nil || got.GetTTL() != 60 {
			t.Errorf("a keep-alive by way of %s = %v, %v behind the gate, want 60 s", s.cfg.Node.Name, got, err)
		}
	}
	for _, s := range all {
		s.gate.shut.Store(false)
	}
}

// answer is that of a member that is asked for its hash.
type answer func(context.Context) (store.Hash, error)

// clockwork is a checkedMember in virtual time. Its hashes are 1, but for others.
func clockwork(n int) (m *checkedMember, answers []answer) {
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
	return &checkedMember{
		log: slog.New(slog.DiscardHandler), all: func() []*hashcheck.Member { return members },
		caughtUp: func() bool { return true },
	}, answers
}

func agrees(context.Context) (store.Hash, error) { return store.Hash{Hash: 1, HashRevision: 5}, nil }

func differs(context.Context) (store.Hash, error) { return store.Hash{Hash: 2, HashRevision: 5}, nil }
func gone(context.Context) (store.Hash, error)    { return store.Hash{}, errors.New("gone") }
func behind(context.Context) (store.Hash, error)  { return store.Hash{}, rpctypes.ErrGRPCCompacted }

// mute swallows what it is asked, as a machine does that has lost its power.
func mute(ctx context.Context) (store.Hash, error) {
	<-ctx.Done()
	return store.Hash{}, grpcstatus.FromContextError(ctx.Err()).Err()
}

// slow takes so long to hash.
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

// How long a member compares before it serves, and how that ends.
func TestHowLongTheInitialCheckTakes(t *testing.T) {
	const patience = 7 * time.Second
	for _, test := range []struct {
		name  string
		set   func(m *checkedMember, a []answer)
		takes time.Duration
		fails string // part of the error
	}{
		{"all agree", func(*checkedMember, []answer) {}, 0, ""},
		{"nobody else answers", func(_ *checkedMember, a []answer) { a[1], a[2] = gone, gone }, 0, ""},
		{"most agree, one is behind", func(_ *checkedMember, a []answer) { a[2] = behind }, 0, ""},
		{"it is behind for good", func(_ *checkedMember, a []answer) { a[1], a[2] = behind, behind }, patience, ""},
		{"most do not agree", func(_ *checkedMember, a []answer) { a[1], a[2] = differs, differs }, 0, "InitialCorruptCheck|member remove"},
		{"one of two that answer differs", func(_ *checkedMember, a []answer) { a[1], a[2] = differs, gone }, patience, "nobody knows whose data is right"},
		{"the one that settles it comes late", func(_ *checkedMember, a []answer) {
			begun := time.Now()
			a[1], a[2] = differs, func(ctx context.Context) (store.Hash, error) {
				if time.Since(begun) < 3*time.Second {
					return gone(ctx)
				}
				return agrees(ctx)
			}
		}, 3 * time.Second, ""},
		{"the others hash slowly, and agree", func(_ *checkedMember, a []answer) {
			a[1], a[2] = slow(2500*time.Millisecond, agrees), slow(2500*time.Millisecond, agrees)
		}, 2500 * time.Millisecond, ""},
		{"the others hash slowly, and differ", func(_ *checkedMember, a []answer) {
			a[1], a[2] = slow(2500*time.Millisecond, differs), slow(2500*time.Millisecond, differs)
		}, patience, "nobody knows|member remove"},
		{"one is silent", func(_ *checkedMember, a []answer) { a[1] = mute }, askTime, ""},
		{"one is silent, the other one differs", func(_ *checkedMember, a []answer) { a[1], a[2] = mute, differs }, patience, "nobody knows"},
		{"one runs out of time by itself", func(_ *checkedMember, a []answer) {
			begun := time.Now()
			a[2] = gone
			a[1] = func(ctx context.Context) (store.Hash, error) {
				if time.Since(begun) < 3*time.Second {
					return store.Hash{}, grpcstatus.Error(codes.DeadlineExceeded, "late")
				}
				return differs(ctx)
			}
		}, patience, "nobody knows"},
		{"its own log is long", func(m *checkedMember, _ []answer) {
			begun := time.Now()
			m.caughtUp = func() bool { return time.Since(begun) >= 2*time.Second }
		}, 2 * time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, answer := clockwork(3)
				test.set(m, answer)
				begun := time.Now()
				err := m.atStart(t.Context(), patience)
				took := time.Since(begun)
				said := false
				for want := range strings.SplitSeq(test.fails, "|") {
					said = said || err != nil && strings.Contains(err.Error(), want)
				}
				if took < test.takes || took >= test.takes+2*askPause || (err != nil) != (test.fails != "") || err != nil && !said {
					t.Errorf("atStart() = %v after %v, want %q after %v", err, took, test.fails, test.takes)
				}
			})
		})
	}
}

// The leader alone compares, so often, and raises each alarm once.
func TestWhoComparesAndWhen(t *testing.T) {
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
		mode.Store(2) // nobody knows any more who is right
		at(2)
		if len(raised) != 2 || raised[0] != 1 {
			t.Errorf("alarms raised = %v, want one of member 0 besides", raised)
		}
		cancel()
		<-done
	})
}

// A member that never answers hides nobody from the leader, and leaves time to raise
// the alarm.
func TestASilentMemberHidesNoneThatDiffers(t *testing.T) {
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
		// One of those that differ from this one is right, and asked by way of another.
		a[0], a[2], a[3], a[4] = differs, agrees, agrees, agrees
		raised = nil
		m.raise = func(ctx context.Context, id uint64) error { raised = append(raised, id); return ctx.Err() }
		m.check(t.Context())
		if !slices.Equal(raised, []uint64{1}) {
			t.Errorf("alarms raised = %v, want one of member 1", raised)
		}
	})
}
