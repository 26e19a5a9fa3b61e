package raft_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/leaderlease/go/leaderlease"
	"github.com/moby/swarmkit/v2/api"
	"github.com/stretchr/testify/require"
)

var (
	leaseOff = flag.Bool("lease-off", false, "swarmkit as it is")
	rounds   = flag.Int("rounds", 10, "faults to make")
)

// call is a read, or a write if value is set.
type call struct{ key, value string }

// register is one key's object: a read shows what was written last.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) (by [][]porcupine.Operation) {
		keys := make(map[string][]porcupine.Operation)
		for _, op := range history {
			keys[op.Input.(call).key] = append(keys[op.Input.(call).key], op)
		}
		for _, ops := range keys {
			by = append(by, ops)
		}
		return by
	},
	Init: func() any { return "new" },
	Step: func(state, input, output any) (bool, any) {
		if c := input.(call); c.value != "" {
			return true, c.value
		}
		return output == state, state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// history is what clients did and saw.
type history struct {
	mu    sync.Mutex
	begin time.Time
	ops   []porcupine.Operation
	reads int
}

func (h *history) do(client int, c call, f func() (string, error)) error {
	called := time.Since(h.begin)
	output, err := f()
	op := porcupine.Operation{ClientId: client, Input: c, Output: output, Call: int64(called), Return: int64(time.Since(h.begin))}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.ops = append(h.ops, op)
		if c.value == "" {
			h.reads++
		}
	case c.value != "": // it may take effect at any time
		op.Return = int64(time.Hour)
		h.ops = append(h.ops, op)
	}
	return err
}

// One copy of the data could have answered what the leaders' reads show, while
// leaders are cut off from the others, and stopped.
func TestLeaderReadsAreLinearizable(t *testing.T) {
	all := newManagers(t, !*leaseOff)
	var total, isolated int
	for round := range *rounds {
		key := fmt.Sprintf("key%d", round)
		var old *manager
		eventually(t, "a key is there", func() error {
			old = leader(t, all...)
			return old.write(key, "new", api.StoreActionKindCreate)
		})
		h := &history{begin: time.Now()}
		var left []*manager
		for _, m := range all {
			if m != old {
				left = append(left, m)
			}
		}
		stop := clients(h, key, all)
		time.Sleep(4 * leaseTick)
		if round%3 == 2 {
			old.stop()
			leader(t, left...)
			time.Sleep(4 * leaseTick)
			stop() // no client asks old while it is replaced
			old.restart(t)
		} else {
			old.isolate(true)
			leader(t, left...)
			before := h.count()
			time.Sleep(8 * leaseTick)
			isolated += h.count() - before
			stop()
			old.isolate(false)
		}
		if result := porcupine.CheckOperationsTimeout(register, h.ops, 20*time.Second); result != porcupine.Ok {
			t.Fatalf("round %d: %v: %d operations are not those of one copy", round, result, len(h.ops))
		}
		total += len(h.ops)
	}
	var byLease uint64
	for _, m := range all {
		if l := m.Lease(); l != nil {
			byLease += l.Stats().Reads[leaderlease.PathLease]
		}
	}
	if byLease == 0 && !*leaseOff {
		t.Error("no read was served by lease")
	}
	t.Logf("%d operations, %d of them reads while a leader was cut off, %d reads by lease", total, isolated, byLease)
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads
}

// clients writes at the leader and reads at each manager until stop is called.
func clients(h *history, key string, all []*manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	loop := func(f func()) {
		wg.Go(func() {
			for ctx.Err() == nil {
				f()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	var values atomic.Int64
	for i, m := range all {
		loop(func() {
			ctx, cancel := context.WithTimeout(ctx, 2*leaseTick)
			defer cancel()
			_ = h.do(2*i, call{key: key}, func() (string, error) { return m.read(ctx, key) })
		})
		loop(func() {
			if !m.IsLeader() || !m.ReadyForProposals() {
				return
			}
			value := fmt.Sprint(values.Add(1))
			_ = h.do(2*i+1, call{key, value}, func() (string, error) {
				return "", m.write(key, value, api.StoreActionKindUpdate)
			})
		})
	}
	return func() { cancel(); wg.Wait() }
}

// A request that the leader serves: what swarmkit does, which may be stale; the
// same with the lease; with a quorum round, as it would be without a lease.
func BenchmarkLeaderRead(b *testing.B) {
	for _, bench := range []struct {
		name         string
		lease, round bool
	}{{"stock", false, false}, {"lease", true, false}, {"again", false, false}, {"round", true, true}} {
		b.Run(bench.name, func(b *testing.B) {
			m := leader(b, newManagers(b, bench.lease)...)
			require.NoError(b, m.write("key", "value", api.StoreActionKindCreate))
			b.SetParallelism(8)
			before := cpu(b)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if bench.round {
						if _, err := m.Lease().ReadIndex(b.Context()); err != nil {
							b.Error(err)
						}
					}
					if _, err := m.read(b.Context(), "key"); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu is what the process has computed, which a busy machine disturbs less than time.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A manager alone leads again soon after its restart, with the lease once it no longer
// keeps what it may have promised. With the option off it waits for that, too, once.
func TestALoneManagerRestarts(t *testing.T) {
	m := newManager(t, &links{cut: make(map[string]bool)}, "", !*leaseOff)
	leader(t, m)
	m.stop()
	begin := time.Now()
	m.restart(t)
	leader(t, m)
	t.Logf("leads %v after its restart, with ticks of %v", time.Since(begin).Round(time.Millisecond), leaseTick)
	m.stop()
	m.opts.LeaderLease = false
	m.restart(t)
	defer m.stop()
	leader(t, m)
	_, err := os.Stat(filepath.Join(m.opts.StateDir, "lease-promise"))
	if m.Lease() == nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the promise is still there with the option off: %v", err)
	}
}
