package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// compactedMember writes one revision a minute and records the proposed compactions.
type compactedMember struct {
	begun time.Time

	mu        sync.Mutex
	every     time.Duration
	term      uint64
	err       error // of the proposal
	refusal   error // of the request
	compacted []string
}

// revision returns the newest revision.
func (m *compactedMember) revision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 1 + int64(time.Since(m.begun)/m.every)
}

// LeadingTerm implements compactingMember.
func (m *compactedMember) LeadingTerm() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term
}

// ProposeFenced implements compactingMember.
func (m *compactedMember) ProposeFenced(_ context.Context, term uint64, r *pb.InternalRaftRequest) (store.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.compacted = append(m.compacted, fmt.Sprintf("%v:%d@%d", time.Since(m.begun), r.GetCompaction().GetRevision(), term))
	return store.Result{Err: m.refusal}, m.err
}

func (m *compactedMember) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func newCompactor(kept retention, m *compactedMember) *autoCompactor {
	return &autoCompactor{kept, m, m.revision, slog.New(slog.DiscardHandler)}
}

// compacting runs f while history is compacted on a member that leads in term 3.
func compacting(t *testing.T, kept retention, f func(m *compactedMember)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &compactedMember{begun: time.Now(), every: time.Minute, term: 3}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { newCompactor(kept, m).run(ctx) })
		f(m)
		cancel()
		wg.Wait()
	})
}

func (m *compactedMember) want(t *testing.T, compacted ...string) {
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
func TestCompactionByRevision(t *testing.T) {
	compacting(t, retention{revisions: 10}, func(m *compactedMember) {
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
func TestPeriodicCompaction(t *testing.T) {
	compacting(t, retention{period: 30 * time.Minute}, func(m *compactedMember) {
		time.Sleep(29 * time.Minute)
		m.want(t)
		time.Sleep(61*time.Minute + time.Second)
		m.want(t, "30m0s:1@3", "1h0m0s:28@3", "1h30m0s:58@3")
	})
}

// A period of hours: the first compaction comes after one period, then one every hour.
func TestPeriodicCompactionOfHours(t *testing.T) {
	compacting(t, retention{period: 3 * time.Hour}, func(m *compactedMember) {
		time.Sleep(5*time.Hour + time.Second)
		m.want(t, "3h0m0s:1@3", "4h0m0s:55@3", "5h0m0s:115@3")
	})
}

// A follower compacts nothing but records revisions. As a new leader it compacts to the revision
// that it recorded a period before.
func TestOnlyTheLeaderCompacts(t *testing.T) {
	compacting(t, retention{period: 30 * time.Minute}, func(m *compactedMember) {
		m.set(func() { m.term = 0 })
		time.Sleep(100 * time.Minute)
		m.want(t)
		m.set(func() { m.term = 4 })
		time.Sleep(3 * time.Minute)
		m.want(t, "1h42m0s:70@4")
	})
	compacting(t, retention{revisions: 10}, func(m *compactedMember) {
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
func TestFailedCompactionsAreTriedAgain(t *testing.T) {
	compacting(t, retention{period: 30 * time.Minute}, func(m *compactedMember) {
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
	compacting(t, retention{revisions: 10}, func(m *compactedMember) {
		m.set(func() { m.err = errors.New("no leader") })
		time.Sleep(15 * time.Minute)
		m.want(t, "10m0s:1@3", "15m0s:6@3")
	})
}

func TestWithoutARetentionNothingIsCompacted(t *testing.T) {
	m := &compactedMember{every: time.Nanosecond, term: 1}
	newCompactor(retention{}, m).run(t.Context()) // returns
	if len(m.compacted) > 0 {
		t.Errorf("compacted %q without a retention", m.compacted)
	}
}

func TestParseRetention(t *testing.T) {
	for _, c := range []struct {
		mode, value string
		want        retention
		fails       bool
	}{
		{CompactPeriodic, "0", retention{}, false},
		{CompactPeriodic, "0s", retention{}, false},
		{CompactPeriodic, "1", retention{period: time.Hour}, false},
		{CompactPeriodic, "30m", retention{period: 30 * time.Minute}, false},
		{CompactPeriodic, "10ms", retention{period: 10 * time.Millisecond}, false},
		{CompactPeriodic, "9ms", retention{}, true},
		{CompactPeriodic, "-1h", retention{}, true},
		{CompactPeriodic, "-1", retention{}, true},
		{CompactPeriodic, "", retention{}, true},
		{CompactPeriodic, "soon", retention{}, true},
		{CompactPeriodic, "2562047", retention{period: 2562047 * time.Hour}, false},
		{CompactPeriodic, "2562048", retention{}, true},
		{CompactRevision, "0", retention{}, false},
		{CompactRevision, "1000", retention{revisions: 1000}, false},
		{CompactRevision, "30m", retention{}, true},
		{CompactRevision, "-1", retention{}, true},
		{"", "0", retention{}, true},
		{"hourly", "1", retention{}, true},
	} {
		got, err := parseRetention(c.mode, c.value)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("parseRetention(%q, %q) = %+v, %v, want %+v and failure %v", c.mode, c.value, got, err, c.want, c.fails)
		}
	}
}
