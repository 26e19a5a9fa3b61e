package servers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
)

// Each key gets as many puts as it is to have versions, and none of them twice in a
// transaction, which servers refuse.
func TestEachKeyIsPutAsOftenAsAsked(t *testing.T) {
	for _, f := range []Fill{{Keys: 250, Versions: 3, PerTxn: 100}, {Keys: 7, Versions: 1, PerTxn: 1}, {Keys: 3, Versions: 2, PerTxn: 100}} {
		all := make(map[string]int)
		for n := range f.txns() * f.Versions {
			one := make(map[string]bool)
			for _, op := range f.puts(n, "v") {
				all[string(op.KeyBytes())]++
				one[string(op.KeyBytes())] = true
			}
			if got := len(f.puts(n, "v")); len(one) != got || got == 0 || got > f.PerTxn {
				t.Errorf("%+v: transaction %d has %d puts of %d keys", f, n, got, len(one))
			}
		}
		if counts := slices.Compact(slices.Collect(maps.Values(all))); len(all) != f.Keys || !slices.Equal(counts, []int{f.Versions}) {
			t.Errorf("%+v: %d keys with %v versions", f, len(all), counts)
		}
	}
}

// A stall counts for each request that was due in it, not for one alone, and answers that
// take longer than it is to the next request make no stall.
func TestAStallCountsForAllThatItHoldsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		p := &probe{every: probeEvery, ask: func(context.Context, int, load.Kind) error {
			time.Sleep(time.Until(begun.Add(time.Second)))
			time.Sleep(2 * probeEvery)
			return nil
		}}
		p.start(t.Context())
		time.Sleep(10*time.Second - time.Millisecond)
		p.finish()
		tally := p.tally(load.Write)
		if tally.Done != 1000 {
			t.Errorf("%d requests in 10 s, want one each 10 ms", tally.Done)
		}
		// A tenth of all were due in the stall: half of them waited for half of it.
		for q, want := range map[float64]time.Duration{1: 1020 * time.Millisecond, 0.95: 520 * time.Millisecond, 0.5: 2 * probeEvery} {
			if got := tally.Quantile(q); got.Round(10*time.Millisecond) != want {
				t.Errorf("quantile %v = %v, want %v", q, got, want)
			}
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
}

// What fails late is a stall, too.
func TestAFailureIsNoSmallLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &probe{every: probeEvery, ask: func(context.Context, int, load.Kind) error {
			time.Sleep(probePatience)
			return errors.New("no answer")
		}}
		p.start(t.Context())
		time.Sleep(probeEvery / 2)
		p.finish()
		if tally := p.tally(load.Read); tally.Failed != 1 || tally.Quantile(1) < probePatience-time.Second {
			t.Errorf("%d failed, the longest after %v, want 1 after %v", tally.Failed, tally.Quantile(1), probePatience)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryIsThatWhichIsResident(t *testing.T) {
	if rss, err := parseMemory("Name:\ta\nVmHWM:\t   50000 kB\nVmRSS:\t   41000 kB\n"); err != nil || rss != 41000<<10 {
		t.Errorf("parseMemory() = %d, %v, want 41,000 KiB", rss, err)
	}
	for _, bad := range []string{"", "VmRSS: many kB\n", "VmHWM: 1 kB\n"} {
		if rss, err := parseMemory(bad); err == nil {
			t.Errorf("parseMemory(%q) = %d, want an error", bad, rss)
		}
	}
}

func TestProcessorTimeIsReadBehindANameOfAnyKind(t *testing.T) {
	const stat = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 123 45 8 9 20 0 12 0 100 1 2 3"
	if d, err := parseCPU(stat); err != nil || d != 1680*time.Millisecond {
		t.Errorf("parseCPU() = %v, %v, want 1.68 s", d, err)
	}
	for _, bad := range []string{"", "7 (a) S 1 2 3", "7 (a) S 1 7 7 0 -1 0 0 0 0 0 x 45 8"} {
		if d, err := parseCPU(bad); err == nil {
			t.Errorf("parseCPU(%q) = %v, want an error", bad, d)
		}
	}
}
