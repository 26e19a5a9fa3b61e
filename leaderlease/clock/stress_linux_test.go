//go:build amd64 || arm64

package clock

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stress is everything at once that might disturb a call on a goroutine's stack.
type stress struct {
	fn       uintptr       // immutable
	stop     chan struct{} // closed when time is up
	readings atomic.Int64
	signals  atomic.Int64
	failed   atomic.Pointer[string] // the first failure
}

// TestVDSOStress is why the vDSO may be the default. While signals arrive on
// every thread at a high rate (the profiler's, preemption, and one that the
// runtime merely ignores), while the collector runs and GOMAXPROCS changes,
// goroutines with stacks of every depth read the clock; each reading must lie
// between two system calls and no goroutine's memory may change. It needs real
// time and real threads.
func TestVDSOStress(t *testing.T) {
	c := needVDSO(t)
	duration := 3 * time.Second
	if testing.Short() {
		duration = time.Second
	}
	for ; ; duration *= 2 { // a busy machine needs longer
		s, hits := stressed(t, c.fn, duration)
		if msg := s.failed.Load(); msg != nil {
			t.Fatal(*msg)
		}
		readings, signals := s.readings.Load(), s.signals.Load()
		t.Logf("%d readings, %d signals, profiler caught the vDSO: %t", readings, signals, hits)
		if readings >= 1000 && signals >= 1000 && hits {
			return
		}
		if duration > 30*time.Second {
			t.Fatalf("%d readings, %d signals, profiler caught the vDSO: %t; want more, or this proves nothing", readings, signals, hits)
		}
	}
}

// stressed does all that for a while, and tells whether the profiler caught the vDSO.
func stressed(t *testing.T, fn uintptr, duration time.Duration) (s *stress, hits bool) {
	t.Helper()
	s = &stress{fn: fn, stop: make(chan struct{})}
	profile := startProfile(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))

	var wg sync.WaitGroup
	for _, f := range []func(){s.sendSignals, s.collect, s.resize, s.spawn, s.spawn, s.burst, s.burst, s.spin} {
		wg.Go(func() {
			for !s.over() {
				f()
			}
		})
	}
	time.Sleep(duration)
	close(s.stop)
	wg.Wait()
	return s, profile()
}

// startProfile profiles at a rate that StartCPUProfile alone would not use. The
// runtime grumbles about that on standard error and obeys. The result tells
// whether a sample was taken inside the vDSO, outside the runtime's own calls.
func startProfile(t *testing.T) (stop func() bool) {
	t.Helper()
	var buf bytes.Buffer
	runtime.SetCPUProfileRate(5000)
	if err := pprof.StartCPUProfile(&buf); err != nil {
		t.Skipf("profiler is in use: %v", err)
	}
	return func() bool {
		pprof.StopCPUProfile()
		z, err := gzip.NewReader(&buf)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(raw, []byte("runtime._VDSO"))
	}
}

func (s *stress) over() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

func (s *stress) fail(what string, got, least, most int64) {
	msg := what + ": " + strconv.FormatInt(got, 10) + ", want " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)
	s.failed.CompareAndSwap(nil, &msg)
}

// read takes n readings between two system calls.
func (s *stress) read(n int) {
	before, err := readBoottime()
	if err != nil {
		s.fail(err.Error(), 0, 0, 0)
	}
	last := before
	for range n {
		now := callVDSO(s.fn)
		if now < last {
			s.fail("reading", now, last, last)
		}
		last = now
	}
	if after, _ := readBoottime(); last > after {
		s.fail("reading", last, before, after)
	}
	s.readings.Add(int64(n))
}

// sendSignals signals every thread. The kernel's profiling timers tick too
// slowly to hit the vDSO often.
func (s *stress) sendSignals() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		s.fail(err.Error(), 0, 0, 0)
		return
	}
	pid := os.Getpid()
	for range 50 {
		for _, task := range tasks {
			tid, _ := strconv.Atoi(task.Name())
			for _, sig := range []unix.Signal{unix.SIGPROF, unix.SIGURG, unix.SIGWINCH} {
				// A thread may have ended since; that is no failure.
				if unix.Tgkill(pid, tid, sig) == nil {
					s.signals.Add(1)
				}
			}
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (s *stress) collect() { runtime.GC() }

func (s *stress) resize() {
	runtime.GOMAXPROCS(1 + rand.IntN(2*runtime.NumCPU()+1))
	time.Sleep(3 * time.Millisecond)
}

func (s *stress) burst() { s.read(500) }

// spin can be stopped by asynchronous preemption only.
func (s *stress) spin() {
	x := uint64(callVDSO(s.fn))
	for range 5_000_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	sink.Store(x)
}

var sink atomic.Uint64

// spawn starts goroutines on the smallest stack, which then grows at every
// possible distance from the call.
func (s *stress) spawn() {
	var wg sync.WaitGroup
	for range 32 {
		depth := rand.IntN(120)
		wg.Go(func() {
			seed := new(rand.Int64())
			s.descend(depth, seed, *seed)
		})
	}
	wg.Wait()
}

// descend reads on the way down and up, with a frame that must not
// change and a heap pointer that the collector must keep finding.
//
//go:noinline
func (s *stress) descend(depth int, heap *int64, want int64) {
	var frame [9]int64
	for i := range frame {
		frame[i] = want + int64(depth+i)
	}
	if depth%8 == 0 {
		s.read(4)
	}
	if depth > 0 {
		s.descend(depth-1, heap, want)
	}
	s.read(1)
	for i, got := range frame {
		if got != want+int64(depth+i) {
			s.fail("stack word", got, want+int64(depth+i), want+int64(depth+i))
		}
	}
	if *heap != want {
		s.fail("heap word", *heap, want, want)
	}
}
