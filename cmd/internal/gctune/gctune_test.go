package gctune

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

func TestMemoryLimit(t *testing.T) {
	for _, tc := range []struct {
		name         string
		memory, live uint64
		want         int64
	}{
		{"unknown", 0, 100 * mib, math.MaxInt64},
		{"much room", 1000 * mib, 100 * mib, 800*mib + floor},
		{"hardly any: the collector must not take the processors", 1000 * mib, 900 * mib, 1170*mib + floor},
	} {
		k := policy{memory: tc.memory}
		if got := k.memoryLimit(sample{live: tc.live}); got > tc.want || got < tc.want-100 {
			t.Errorf("%s: memoryLimit() = %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A large heap has less garbage. The end restores the percentage of before.
func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, largeHeap - 1: 100, largeHeap: 50, 10 << 30: 50} {
		if got := (&policy{}).percent(sample{live: live}); got != want {
			t.Errorf("with %d bytes alive: percent() = %d, want %d", live, got, want)
		}
	}
	set := debug.SetGCPercent(77)
	defer debug.SetGCPercent(set)
	Start()()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("afterwards the collector lets garbage grow to %d %%, want 77 as before", got)
	}
}

func TestReleaseWhenIdle(t *testing.T) {
	begin := time.Unix(0, 0).Add(time.Hour)
	k := policy{}
	for _, step := range []struct {
		name string
		at   time.Duration
		s    sample
		want bool
	}{
		{"loading", 0, sample{live: 500 * mib, held: 1000 * mib, allocated: 3000 * mib}, false},
		{"still allocates", 10 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3063 * mib}, false},
		{"idle", 20 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, true},
		{"just released", 79 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, false},
		{"a minute later", 80 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, true},
		{"too little beside the live heap", 200 * time.Second, sample{live: 500 * mib, held: 624 * mib, allocated: 3125 * mib}, false},
		{"enough", 210 * time.Second, sample{live: 500 * mib, held: 625 * mib, allocated: 3125 * mib}, true},
		{"too little of a small heap", 500 * time.Second, sample{live: 8 * mib, held: 10*mib - 1, allocated: 3125 * mib}, false},
		{"enough of a small heap", 510 * time.Second, sample{live: 8 * mib, held: 10 * mib, allocated: 3125 * mib}, true},
		{"live above held, as between two samples", 1000 * time.Second, sample{live: 24 * mib, held: 8 * mib, allocated: 3125 * mib}, false},
	} {
		if got := k.shouldRelease(begin.Add(step.at), step.s); got != step.want {
			t.Errorf("%s: shouldRelease(%+v) = %v, want %v", step.name, step.s, got, step.want)
		}
	}
}

// Memory that a release could not free is not released again each minute. More on top of it is.
func TestStuckMemoryIsNotReleasedAgain(t *testing.T) {
	begin := time.Unix(0, 0).Add(time.Hour)
	k := policy{}
	k.shouldRelease(begin, sample{allocated: 3000 * mib})
	k.stuck = 300 * mib
	for _, step := range []struct {
		name       string
		at         time.Duration
		live, held uint64
		want       bool
	}{
		{"what stays", time.Minute, 1000 * mib, 1300 * mib, false},
		{"and little more", 2 * time.Minute, 1000 * mib, 1549 * mib, false},
		{"and enough", 3 * time.Minute, 1000 * mib, 1550 * mib, true},
		{"less stays", 5 * time.Minute, 1000 * mib, 1100 * mib, false},
		{"enough beside that", 6 * time.Minute, 1000 * mib, 1350 * mib, true},
	} {
		if got := k.shouldRelease(begin.Add(step.at), sample{live: step.live, held: step.held, allocated: 3000 * mib}); got != step.want {
			t.Errorf("%s: shouldRelease() = %v, want %v", step.name, got, step.want)
		}
	}
}

// A server that keeps allocating soon needs what it released, so the pause between releases grows. After
// four pauses without a release it is a minute again.
func TestThePauseGrows(t *testing.T) {
	const live, rate = 10 << 30, 20 * mib // a second
	k := policy{}
	begin := time.Unix(0, 0).Add(time.Hour)
	released, given, garbage := time.Duration(0), 0, uint64(0)
	for at := time.Duration(0); at < time.Hour; at += decideEvery * sampleEvery {
		if garbage += rate * 10; garbage > live {
			garbage = 0 // a collection, since the heap has doubled
		}
		s := sample{live: live, held: live + garbage, allocated: uint64(at/time.Second) * rate}
		if k.shouldRelease(begin.Add(at), s) {
			released, garbage, given = at, 0, given+1
		}
	}
	// By itself the runtime collects seven times in an hour.
	if given == 0 || given > 8 {
		t.Errorf("memory is released %d times in an hour, want a few times", given)
	}
	later := released + 4*maxPause
	for _, at := range []time.Duration{later, later + minPause} {
		if !k.shouldRelease(begin.Add(at), sample{live: live, held: 2 * live, allocated: k.allocated}) {
			t.Errorf("nothing is released %v after the last release", at-released)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for _, tc := range []struct {
		name string
		fs   fstest.MapFS
		want uint64
	}{
		{"no Linux", fstest.MapFS{}, 0},
		{"no limit", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		{"a container", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1000\n")}, 1000},
		{"the least of all above", fstest.MapFS{
			"proc/self/cgroup": file("1:name=x:/y\n0::/a/b\n"), "sys/fs/cgroup/memory.max": file("3000\n"),
			"sys/fs/cgroup/a/memory.max": file("1000\n"), "sys/fs/cgroup/a/b/memory.max": file("2000\n"),
		}, 1000},
		{"outside of what is mounted", fstest.MapFS{"proc/self/cgroup": file("0::/../x\n"), "sys/fs/cgroup/memory.max": file("7\n")}, 7},
		{"no number", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("-1\n")}, 0},
	} {
		if got := cgroupLimit(tc.fs); got != tc.want {
			t.Errorf("%s: cgroupLimit() = %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestSampleExcludesTheBallast(t *testing.T) {
	defer Start()()
	heapGoal() // collects
	if s := readSample(); s.live > floor/2 || s.held < s.live {
		t.Errorf("readSample() = %+v with an empty heap", s)
	}
	data := make([]byte, 32*mib)
	heapGoal()
	if s := readSample(); s.live < 32*mib || s.live > floor || s.allocated < 32*mib {
		t.Errorf("readSample() = %+v with %d bytes alive", s, 32*mib)
	}
	runtime.KeepAlive(data)
}

// heapGoal returns the size at which the collector runs next.
func heapGoal() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// A small heap may grow, unless GOGC or GOMEMLIMIT is set.
func TestASmallHeapMayGrow(t *testing.T) {
	tests := []struct {
		gogc, limit string
		raised      bool
	}{
		{"", "", true},
		{"100", "", false},
		{"", "1GiB", false},
	}
	for _, tc := range tests {
		t.Setenv("GOGC", tc.gogc)
		t.Setenv("GOMEMLIMIT", tc.limit)
		stop := Start()
		if goal := heapGoal(); goal > floor != tc.raised {
			t.Errorf("GOGC=%q GOMEMLIMIT=%q: the collector runs at %d bytes, want above %d: %v", tc.gogc, tc.limit, goal, floor, tc.raised)
		}
		stop()
	}
	if goal := heapGoal(); goal > floor {
		t.Errorf("afterwards the collector still runs at %d bytes", goal)
	}
}

// An idle process releases memory at the first decision that finds it idle, and once only. The limit and
// the percentage are set on changes only, and restored at the end.
func TestTune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		now := sample{live: 10 * mib, held: 100 * mib, allocated: 1000 * mib}
		var sampled, released []time.Duration
		var limits []int64
		var percents []int
		limit, percent := int64(7), 77
		rt := gcRuntime{
			sample: func() sample {
				sampled = append(sampled, time.Since(begin))
				if time.Since(begin) < 7*time.Second {
					now.allocated += 20 * mib // still loading
				}
				return now
			},
			release: func(_ context.Context, s sample) {
				released = append(released, time.Since(begin))
				now.held = s.live + 20*mib
			},
			setLimit: func(bytes int64) (was int64) {
				if was = limit; bytes >= 0 {
					limits, limit = append(limits, bytes), bytes
				}
				return was
			},
			setPercent: func(p int) (was int) {
				percents, was, percent = append(percents, p), percent, p
				return was
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-1)
		defer cancel()
		tune(ctx, 1000*mib, rt)
		if want := []time.Duration{15 * time.Second}; !slices.Equal(released, want) {
			t.Errorf("releases at %v, want %v", released, want)
		}
		if want := int(time.Hour/sampleEvery) + len(released); len(sampled) != want {
			t.Errorf("%d samples in an hour, want %d", len(sampled), want)
		}
		if want := []int64{(&policy{memory: 1000 * mib}).memoryLimit(now), 7}; !slices.Equal(limits, want) {
			t.Errorf("the limits are %d, want %d", limits, want)
		}
		if want := []int{100, 100, 77}; !slices.Equal(percents, want) {
			t.Errorf("the percentages are %d, want %d", percents, want)
		}
	})
}

func TestReleaseSteps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, tc := range []struct {
		name       string
		free, stop uint64 // free does not fall below stop
		after      int    // steps, after which ctx ends
		left       uint64
		steps      int
	}{
		{"down to keep", 100 * mib, 0, 99, 10 * mib, 6},
		{"less than keep", 9 * mib, 0, 99, 9 * mib, 0},
		{"some is stuck", 100 * mib, 68 * mib, 99, 68 * mib, 3},
		{"the end of the process", 100 * mib, 0, 2, 68 * mib, 2},
	} {
		steps, left := 0, tc.free
		release(ctx, 10*mib, func() uint64 { return left }, func(n uint64) {
			if n > releaseStep {
				t.Errorf("%s: %d bytes at a time, want %d at most", tc.name, n, releaseStep)
			}
			if left = max(left-n, tc.stop); steps+1 == tc.after {
				cancel()
			}
			steps++
		})
		if left != tc.left || steps != tc.steps {
			t.Errorf("%s: %d bytes are left after %d steps, want %d after %d", tc.name, left, steps, tc.left, tc.steps)
		}
	}
}

func TestReleaseBytes(t *testing.T) {
	func() {
		pages := make([][]byte, 8<<10)
		for i := range pages {
			pages[i] = make([]byte, 16<<10)
		}
		runtime.KeepAlive(pages)
	}()
	runtime.GC()
	runtime.GC()
	release(t.Context(), minRelease, freeBytes, releaseBytes)
	if n := freeBytes(); n > 2*minRelease {
		t.Errorf("%d bytes are free and not released, want %d at most", n, minRelease)
	}
	releaseBytes(mib) // the runtime may have released everything itself
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Errorf("the limit is %d afterwards, want none", limit)
	}
}
