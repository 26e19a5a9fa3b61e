package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// register is a Client with operations as slow as delay says.
type register struct {
	delay func(since time.Duration) time.Duration
	fail  func(n int) error
	// behind makes reads show older versions.
	behind uint64

	mu      sync.Mutex
	start   time.Time
	ops     int
	version uint64
}

func newRegister(d time.Duration) *register {
	return &register{start: time.Now(), delay: func(time.Duration) time.Duration { return d }}
}

func (r *register) op() error {
	r.mu.Lock()
	r.ops++
	n := r.ops
	r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(n); err != nil {
			return err
		}
	}
	time.Sleep(r.delay(time.Since(r.start)))
	return nil
}

func (r *register) Read(context.Context, int) (Seen, error) {
	if err := r.op(); err != nil {
		return Seen{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Seen{Version: r.version - min(r.behind, r.version), Path: PathLease}, nil
}

func (r *register) Write(context.Context, int) (uint64, error) {
	if err := r.op(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	return r.version, nil
}

func runLoad(t *testing.T, l Load) *Result {
	t.Helper()
	r, err := l.Run(t.Context())
	if err != nil {
		t.Fatalf("Run() = %v", err)
	}
	return r
}

func TestClosedLoopCountsWhatItsClientsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runLoad(t, Load{
			Target: Each{newRegister(10 * time.Millisecond)}, Clients: 10, Keys: Keys{Count: 1},
			Warmup: 500 * time.Millisecond, Duration: time.Second,
		})
		if r.Read.Done < 990 || r.Read.Done > 1010 || r.Read.Paths[PathLease] != r.Read.Done {
			t.Errorf("10 clients at 10 ms did %d reads, %d by lease, in %v, want 1000", r.Read.Done, r.Read.Paths[PathLease], r.Elapsed)
		}
		if p := r.Read.Quantile(0.9999); p < 10*time.Millisecond || p > 10100*time.Microsecond {
			t.Errorf("p99.99 = %v, want 10ms", p)
		}
		if r.Sample != 1 {
			t.Errorf("one in %d was timed, want all", r.Sample)
		}
	})
}

// A target that stalls for a second while operations are due every 10 ms delays
// a hundred of them. A closed loop of one client sees one slow operation.
func TestOpenLoopShowsTheStallThatAClosedLoopOmits(t *testing.T) {
	stall := func(since time.Duration) time.Duration {
		if since >= 2*time.Second && since < 2010*time.Millisecond {
			return time.Second
		}
		return time.Millisecond
	}
	load := func(target Target) Load {
		return Load{Target: target, Clients: 1, Keys: Keys{Count: 1}, Duration: 10 * time.Second}
	}
	synctest.Test(t, func(t *testing.T) {
		target := newRegister(0)
		target.delay = stall
		closed := runLoad(t, load(Each{target}))
		if p := closed.Read.Quantile(0.99); p > 2*time.Millisecond {
			t.Errorf("closed loop: p99 = %v, want 1ms: the stall is one of thousands", p)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		target := newRegister(0)
		target.delay = stall
		l := load(Each{target})
		l.Rate = 100
		open := runLoad(t, l)
		if p := open.Read.Quantile(0.95); p < 400*time.Millisecond {
			t.Errorf("open loop: p95 = %v, want about 0.5s: a tenth of all operations were due during the stall", p)
		}
		if open.Read.Done != 1000 {
			t.Errorf("open loop: %d operations, want the 1000 that were due", open.Read.Done)
		}
	})
}

// A target that hangs for as long as it is measured has done nothing, and that
// must show.
func TestClosedLoopShowsAStallThatCoversItAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newRegister(0)
		target.delay = func(since time.Duration) time.Duration {
			if since < 500*time.Millisecond {
				return time.Millisecond
			}
			return 3 * time.Second
		}
		r := runLoad(t, Load{
			Target: Each{target}, Clients: 4, Keys: Keys{Count: 1},
			Warmup: 600 * time.Millisecond, Duration: time.Second,
		})
		if r.Read.Done != 0 || !r.Asked[Read] || r.Asked[Write] || r.Read.Latency.TotalCount() != 4 || r.Read.Quantile(0) < 2900*time.Millisecond {
			t.Errorf("%d done, latency of %d from %v on, want 0 done and 4 latencies of 3s", r.Read.Done, r.Read.Latency.TotalCount(), r.Read.Quantile(0))
		}
	})
}

func TestOpenLoopCountsWhatItCouldNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runLoad(t, Load{
			Target: Each{newRegister(time.Second)}, Clients: 1, Keys: Keys{Count: 1},
			Rate: 100, Duration: time.Second, Grace: time.Second,
		})
		if r.Read.Done+r.Read.Failed != 100 || r.Read.Failed < 97 {
			t.Errorf("%d done and %d failed of 100 that were due, of which 2 could begin", r.Read.Done, r.Read.Failed)
		}
	})
}

type instant struct{}

func (instant) Read(context.Context, int) (Seen, error)    { return Seen{}, nil }
func (instant) Write(context.Context, int) (uint64, error) { return 1, nil }

func TestOneIn64IsTimedWhereTimingWouldBeTheLoad(t *testing.T) {
	for _, c := range []struct {
		name       string
		ops        int64
		processors int
		want       bool
	}{
		{"nothing was done", 0, 2, false},
		{"2000 ns each, on one processor", 500, 1, false},
		{"1996 ns each, on one processor", 501, 1, true},
		{"twice as many take as long on two", 1000, 2, false},
		{"a lease read", 50_000, 2, true},
	} {
		if got := tooFastToTime(c.ops, time.Millisecond, c.processors); got != c.want {
			t.Errorf("%s: tooFastToTime(%d in 1ms) = %v, want %v", c.name, c.ops, got, c.want)
		}
	}
	// In real time it depends on the machine whether this is one in 64.
	r := runLoad(t, Load{
		Target: Each{instant{}}, Clients: 1, Keys: Keys{Count: 1},
		Warmup: 20 * time.Millisecond, Duration: 20 * time.Millisecond,
	})
	timed, each := r.Read.Latency.TotalCount(), r.Read.Done/int64(r.Sample)
	if timed < each || timed > each+2 {
		t.Errorf("%d of %d operations were timed, want one in %d", timed, r.Read.Done, r.Sample)
	}
}

func TestTheFloorCatchesReadsOfThePast(t *testing.T) {
	for _, behind := range []uint64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			target := newRegister(time.Millisecond)
			target.behind = behind
			r := runLoad(t, Load{
				Target: Each{target}, Clients: 4, Keys: Keys{Count: 1}, WritePercent: 50,
				Warmup: 100 * time.Millisecond, Duration: time.Second,
			})
			if caught := r.Read.Stale > r.Read.Done/10; caught != (behind > 0) || r.AuditedStale < r.Read.Stale {
				t.Errorf("%d versions behind: %d of %d reads are stale (%d with the warm-up)", behind, r.Read.Stale, r.Read.Done, r.AuditedStale)
			}
		})
	}
}

func TestZipfPrefersTheFirstKeys(t *testing.T) {
	count := func(k Keys) (first int) {
		next := k.chooser(rand.New(rand.NewPCG(1, 2)))
		for range 10_000 {
			key := next()
			if key < 0 || key >= k.Count {
				t.Fatalf("key %d of %d", key, k.Count)
			}
			if key < k.Count/100 {
				first++
			}
		}
		return first
	}
	if got := count(Keys{Count: 1000}); got < 50 || got > 200 {
		t.Errorf("uniform: %d of 10000 hit the first hundredth, want 100", got)
	}
	if got := count(Keys{Count: 1000, Zipf: 1.2}); got < 5000 {
		t.Errorf("zipf: %d of 10000 hit the first hundredth, want most", got)
	}
}

func TestQuantilesNeedEnoughOperations(t *testing.T) {
	all := NewTally()
	for range 1000 {
		_ = all.Latency.RecordValue(5)
	}
	if !all.Supports(0.999) || all.Supports(0.9999) {
		t.Errorf("1000 operations: Supports(0.999) = %v, Supports(0.9999) = %v, want true, false", all.Supports(0.999), all.Supports(0.9999))
	}
	if ParsePath(PathForwarded.String()) != PathForwarded || ParsePath("?") != PathUnknown {
		t.Error("paths and names do not match")
	}
}

func TestFailuresAreCountedByText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newRegister(time.Millisecond)
		target.fail = func(n int) error {
			if n%10 == 0 {
				time.Sleep(time.Millisecond)
				return errors.New("every tenth " + strings.Repeat("x", 200))
			}
			return nil
		}
		r := runLoad(t, Load{Target: Each{target}, Clients: 1, Keys: Keys{Count: 1}, Duration: time.Second})
		if r.Read.Failed < 99 || r.Read.Failed > 101 || len(r.Read.Errors) != 1 {
			t.Errorf("%d of %d failed with %d texts, want a tenth with one", r.Read.Failed, r.Read.Done, len(r.Read.Errors))
		}
		if timed := r.Read.Latency.TotalCount(); timed < r.Read.Done || timed > r.Read.Done+1 {
			t.Errorf("%d latencies of %d reads that were done", timed, r.Read.Done)
		}
	})
}

func TestErrorTextsAreBounded(t *testing.T) {
	all := NewTally()
	for i := range 100 {
		all.Fail(errors.New("text " + strings.Repeat("y", i)))
	}
	if all.Failed != 100 || len(all.Errors) > maxTexts+1 {
		t.Errorf("%d failures under %d texts, want 100 under at most %d", all.Failed, len(all.Errors), maxTexts+1)
	}
}
