package autocompact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// member writes one revision a minute and records the proposed compactions.
type member struct {
	begun time.Time

	mu        sync.Mutex
	every     time.Duration
	term      uint64
	err       error // of the proposal
	refusal   error // of the request
	compacted []string
}

// Revision implements Revisions.
func (m *member) Revision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 1 + int64(time.Since(m.begun)/m.every)
}

// LeadingTerm implements Member.
func (m *member) LeadingTerm() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term
}

// ProposeFenced implements Member.
func (m *member) ProposeFenced(_ context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacted = append(m.compacted, fmt.Sprintf("%v:%d@%d", time.Since(m.begun), r.GetCompaction().GetRevision(), term))
	return store.Result{Err: m.refusal}, m.err
}

func (m *member) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// during runs f while Run runs with p on a member that leads in term 3.
func during(t *testing.T, p Policy, f func(m *member)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &member{begun: time.Now(), every: time.Minute, term: 3}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { Run(ctx, Config{Policy: p, Member: m, Revisions: m}) })
		f(m)
		cancel()
		wg.Wait()
	})
}

func (m *member) want(t *testing.T, compacted ...string) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.compacted, compacted) {
		t.Errorf("after %v compacted %q, want %q", time.Since(m.begun), m.compacted, compacted)
	}
	m.compacted = nil
}

// Revision mode compacts every five minutes, once there are more revisions than it keeps.
func TestByRevision(t *testing.T) {
	during(t, Policy{Revisions: 10}, func(m *member) {
		time.Sleep(10 * time.Minute)
		m.want(t, "10m0s:1@3") // 11 revisions
		time.Sleep(10 * time.Minute)
		m.want(t, "15m0s:6@3", "20m0s:11@3")
		m.set(func() { m.every = time.Hour }) // the newest revision is 1 again, so there is nothing to compact
		time.Sleep(10 * time.Minute)
		m.want(t)
	})
}

// A period below an hour: the first compaction comes after one period, then one every period, to
// the revision that was the newest one period and a tenth before.
func TestPeriodic(t *testing.T) {
	during(t, Policy{Period: 30 * time.Minute}, func(m *member) {
		time.Sleep(29 * time.Minute)
		m.want(t)
		time.Sleep(61*time.Minute + time.Second)
		m.want(t, "30m0s:1@3", "1h0m0s:28@3", "1h30m0s:58@3")
	})
}

// A period of hours: the first compaction comes after one period, then one every hour.
func TestPeriodicOfHours(t *testing.T) {
	during(t, Policy{Period: 3 * time.Hour}, func(m *member) {
		time.Sleep(5*time.Hour + time.Second)
		m.want(t, "3h0m0s:1@3", "4h0m0s:55@3", "5h0m0s:115@3")
	})
}

// A follower compacts nothing but records revisions. As a new leader it compacts to the revision
// that it recorded a period before.
func TestOnlyTheLeaderCompacts(t *testing.T) {
	during(t, Policy{Period: 30 * time.Minute}, func(m *member) {
		m.set(func() { m.term = 0 })
		time.Sleep(100 * time.Minute)
		m.want(t)
		m.set(func() { m.term = 4 })
		time.Sleep(3 * time.Minute)
		m.want(t, "1h42m0s:70@4")
	})
	during(t, Policy{Revisions: 10}, func(m *member) {
		m.set(func() { m.term = 0 })
		time.Sleep(time.Hour)
		m.want(t)
		m.set(func() { m.term = 4 })
		time.Sleep(5 * time.Minute)
		m.want(t, "1h5m0s:56@4")
	})
}

// A failed compaction is tried again at the next interval. A revision that is compacted already
// counts as done.
func TestFailuresAreTriedAgain(t *testing.T) {
	during(t, Policy{Period: 30 * time.Minute}, func(m *member) {
		m.set(func() { m.err = errors.New("no leader") })
		time.Sleep(34 * time.Minute)
		m.want(t, "30m0s:1@3", "33m0s:1@3")
		m.set(func() { m.err, m.refusal = nil, store.ErrFenced })
		time.Sleep(3 * time.Minute)
		m.want(t, "36m0s:4@3")
		m.set(func() { m.refusal = rpctypes.ErrGRPCCompacted })
		time.Sleep(29 * time.Minute)
		m.want(t, "39m0s:7@3")
	})
	during(t, Policy{Revisions: 10}, func(m *member) {
		m.set(func() { m.err = errors.New("no leader") })
		time.Sleep(15 * time.Minute)
		m.want(t, "10m0s:1@3", "15m0s:6@3")
	})
}

func TestNoPolicyDoesNothing(t *testing.T) {
	m := &member{every: time.Nanosecond, term: 1}
	Run(t.Context(), Config{Member: m, Revisions: m}) // returns
	if len(m.compacted) > 0 {
		t.Errorf("compacted %q without a policy", m.compacted)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		mode, retention string
		want            Policy
		fails           bool
	}{
		{Periodic, "0", Policy{}, false},
		{Periodic, "0s", Policy{}, false},
		{Periodic, "1", Policy{Period: time.Hour}, false},
		{Periodic, "30m", Policy{Period: 30 * time.Minute}, false},
		{Periodic, "10ms", Policy{Period: 10 * time.Millisecond}, false},
		{Periodic, "9ms", Policy{}, true},
		{Periodic, "-1h", Policy{}, true},
		{Periodic, "-1", Policy{}, true},
		{Periodic, "", Policy{}, true},
		{Periodic, "soon", Policy{}, true},
		{Periodic, "2562047", Policy{Period: 2562047 * time.Hour}, false},
		{Periodic, "2562048", Policy{}, true},
		{Revision, "0", Policy{}, false},
		{Revision, "1000", Policy{Revisions: 1000}, false},
		{Revision, "30m", Policy{}, true},
		{Revision, "-1", Policy{}, true},
		{"", "0", Policy{}, true},
		{"hourly", "1", Policy{}, true},
	} {
		got, err := Parse(c.mode, c.retention)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("Parse(%q, %q) = %+v, %v, want %+v and failure %v", c.mode, c.retention, got, err, c.want, c.fails)
		}
		if got.Enabled() != (c.want != Policy{}) {
			t.Errorf("Parse(%q, %q).Enabled() = %v", c.mode, c.retention, got.Enabled())
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
