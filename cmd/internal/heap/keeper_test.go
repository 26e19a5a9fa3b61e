package heap

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

func TestTheLimitLeavesRoom(t *testing.T) {
	for _, tc := range []struct {
		name         string
		memory, live uint64
		want         int64
	}{
		{"nobody says", 0, 100 * mib, math.MaxInt64},
		{"much room", 1000 * mib, 100 * mib, 800*mib + floor},
		{"hardly any: the collector must not take the processors", 1000 * mib, 900 * mib, 1170*mib + floor},
	} {
		k := keeper{memory: tc.memory}
		if got := k.limit(sample{live: tc.live}); got > tc.want || got < tc.want-100 {
			t.Errorf("%s: limit() = %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Of much data there is less garbage. What Keep sets is what was set before, when it ends.
func TestMuchDataHasLessGarbage(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, large - 1: 100, large: 50, 10 << 30: 50} {
		if got := (&keeper{}).percent(sample{live: live}); got != want {
			t.Errorf("with %d bytes alive: percent() = %d, want %d", live, got, want)
		}
	}
	set := debug.SetGCPercent(77)
	defer debug.SetGCPercent(set)
	Keep()()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("afterwards the collector lets garbage grow to %d %%, want 77 as before", got)
	}
}

func TestMemoryIsGivenBackWhenItIsCalm(t *testing.T) {
	begin := time.Unix(0, 0).Add(time.Hour)
	k := keeper{}
	for _, step := range []struct {
		name string
		at   time.Duration
		s    sample
		want bool
	}{
		{"it is loading", 0, sample{live: 500 * mib, held: 1000 * mib, allocated: 3000 * mib}, false},
		{"it still allocates", 10 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3063 * mib}, false},
		{"it is calm", 20 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, true},
		{"it was just done", 79 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, false},
		{"a minute later", 80 * time.Second, sample{live: 500 * mib, held: 1000 * mib, allocated: 3125 * mib}, true},
		{"too little beside what is alive", 200 * time.Second, sample{live: 500 * mib, held: 624 * mib, allocated: 3125 * mib}, false},
		{"enough", 210 * time.Second, sample{live: 500 * mib, held: 625 * mib, allocated: 3125 * mib}, true},
		{"too little of a small heap", 500 * time.Second, sample{live: 8 * mib, held: 10*mib - 1, allocated: 3125 * mib}, false},
		{"enough of a small heap", 510 * time.Second, sample{live: 8 * mib, held: 10 * mib, allocated: 3125 * mib}, true},
		{"more alive than held, as between two looks", 1000 * time.Second, sample{live: 24 * mib, held: 8 * mib, allocated: 3125 * mib}, false},
	} {
		if got := k.giveBack(begin.Add(step.at), step.s); got != step.want {
			t.Errorf("%s: giveBack(%+v) = %v, want %v", step.name, step.s, got, step.want)
		}
	}
}

// What giving back does not free is not tried again each minute: two collections of all
// that is alive, for nothing. More on top of it is.
func TestWhatStaysIsNotTriedAgain(t *testing.T) {
	begin := time.Unix(0, 0).Add(time.Hour)
	k := keeper{}
	k.giveBack(begin, sample{allocated: 3000 * mib})
	k.stays = 300 * mib
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
		if got := k.giveBack(begin.Add(step.at), sample{live: step.live, held: step.held, allocated: 3000 * mib}); got != step.want {
			t.Errorf("%s: giveBack() = %v, want %v", step.name, got, step.want)
		}
	}
}

// A server that allocates a little all the time has taken back soon what it gave: then it is
// left alone for longer, or the collections of much that is alive would go on and on. After a
// while in which there was nothing to give, it is a minute again.
func TestWhatIsTakenBackIsGivenMoreSeldom(t *testing.T) {
	const live, rate = 10 << 30, 20 * mib // a second
	k := keeper{}
	begin := time.Unix(0, 0).Add(time.Hour)
	gave, given, garbage := time.Duration(0), 0, uint64(0)
	for at := time.Duration(0); at < time.Hour; at += looks * every {
		if garbage += rate * 10; garbage > live {
			garbage = 0 // it is collected, since the heap has doubled
		}
		s := sample{live: live, held: live + garbage, allocated: uint64(at/time.Second) * rate}
		if k.giveBack(begin.Add(at), s) {
			gave, garbage, given = at, 0, given+1
		}
	}
	// By itself the runtime collects seven times in an hour.
	if given == 0 || given > 8 {
		t.Errorf("memory is given back %d times in an hour, want a few times", given)
	}
	later := gave + 4*longest
	for _, at := range []time.Duration{later, later + pause} {
		if !k.giveBack(begin.Add(at), sample{live: live, held: 2 * live, allocated: k.allocated}) {
			t.Errorf("nothing is given back %v after it was last", at-gave)
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
		{"nobody says", fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
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

// What is alive is seen, and the floor is no part of it.
func TestLookLeavesTheFloorOut(t *testing.T) {
	defer Keep()()
	heapGoal() // collects
	if s := look(); s.live > floor/2 || s.held < s.live {
		t.Errorf("look() = %+v with next to nothing alive", s)
	}
	data := make([]byte, 32*mib)
	heapGoal()
	if s := look(); s.live < 32*mib || s.live > floor || s.allocated < 32*mib {
		t.Errorf("look() = %+v with %d bytes alive", s, 32*mib)
	}
	runtime.KeepAlive(data)
}
