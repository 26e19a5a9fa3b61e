package leaderlease_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

var discardLog = log.New(io.Discard, "", 0)

// BenchmarkTryRead compares a lease check with what it cannot do without, one
// clock reading; with what everybody knows, time.Now; and with the check that
// one would write at first, a mutex and time.Now. ns/op is the time that one
// goroutine needs for one operation; with op=TryRead16 one operation is one of
// 16 reads that share a check.
func BenchmarkTryRead(b *testing.B) {
	for _, c := range []clock.Clock{clock.System(), clock.Runtime()} {
		for _, goroutines := range []int{1, 2} {
			for _, op := range tryReadOps(newTrio(b, c, true).leader().lease, c) {
				name := fmt.Sprintf("clock=%s/goroutines=%d/op=%s", clock.Describe(c).Name, goroutines, op.name)
				b.Run(name, func(b *testing.B) { inParallel(b, goroutines, op.run) })
			}
		}
	}
}

// inParallel lets each goroutine do b.N operations on a core of its own.
func inParallel(b *testing.B, goroutines int, run func(n int) error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			if err := run(b.N); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// tryReadOp does n operations. The loop is inside, so that no arm pays for a
// call that the others do not.
type tryReadOp struct {
	name string
	run  func(n int) error
}

func tryReadOps(l *leaderlease.Lease, c clock.Clock) []tryReadOp {
	naive := &naiveLease{end: time.Now().Add(time.Hour)}
	return append([]tryReadOp{
		{"time.Now", func(n int) error {
			for range n {
				if time.Now().IsZero() {
					return errRefused
				}
			}
			return nil
		}},
		{"clock", func(n int) error {
			for range n {
				if c.Now() == 0 {
					return errRefused
				}
			}
			return nil
		}},
		{"mutex", func(n int) error {
			for range n {
				if _, ok := naive.tryRead(); !ok {
					return errRefused
				}
			}
			return nil
		}},
	}, leaseOps(l)...)
}

// leaseOps are the ways to ask a lease.
func leaseOps(l *leaderlease.Lease) []tryReadOp {
	return []tryReadOp{
		{"TryRead", func(n int) error {
			for range n {
				if _, s := l.TryRead(); s != core.Valid {
					return errRefused
				}
			}
			return nil
		}},
		{"TryRead16", func(n int) error {
			var index uint64
			var s core.Status
			for i := range n {
				// Fifteen of sixteen requests use the answer of the one before.
				if i%16 == 0 {
					index, s = l.TryRead()
				}
				if s != core.Valid || index == 0 {
					return errRefused
				}
			}
			return nil
		}},
		{"Read", func(n int) error {
			ctx := context.Background()
			for range n {
				if r, err := l.Read(ctx); err != nil || r.Path != leaderlease.PathLease {
					return errRefused
				}
			}
			return nil
		}},
	}
}

// errRefused means that a benchmark measured something else than it says.
var errRefused = fmt.Errorf("the lease is not valid")

// naiveLease is the lease check that one would write at first.
type naiveLease struct {
	mu    sync.RWMutex
	end   time.Time
	index uint64
}

func (l *naiveLease) tryRead() (index uint64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.index, time.Now().Before(l.end)
}
