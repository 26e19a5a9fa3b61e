package core

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3/quorum"
)

// sink keeps results alive.
var sink int

// BenchmarkCheck is what each read pays in the core.
func BenchmarkCheck(b *testing.B) {
	l := leading(sec, voters(1, 2, 3))
	grants(l, sec, sec, 2)
	v := l.View(sec)
	now := 1500 * ms
	b.ReportAllocs()
	for b.Loop() {
		sink += int(v.Check(now))
	}
}

// BenchmarkCount is what the leader pays for each grant, every one of which
// moves the lease.
func BenchmarkCount(b *testing.B) {
	for _, n := range []int{3, 5, 7} {
		b.Run(fmt.Sprintf("voters=%d", n), func(b *testing.B) {
			count(b, voters([]uint64{1, 2, 3, 4, 5, 6, 7}[:n]...), n)
		})
	}
	b.Run("voters=3+3", func(b *testing.B) {
		count(b, joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}), 5)
	})
}

func count(b *testing.B, cfg quorum.JointConfig, n int) {
	b.Helper()
	l := leading(sec, cfg)
	g := Grant{Duration: time.Second, Incarnation: 1}
	now, from := sec, 0
	b.ReportAllocs()
	for b.Loop() {
		now += ms
		g.Sent, g.Reading = now, now
		if l.Count(uint64(2+from), 5, g, now) {
			sink++
		}
		if from++; from == n-1 {
			from = 0
		}
	}
}

// BenchmarkPromise is what a voter pays for each heartbeat and its answer.
func BenchmarkPromise(b *testing.B) {
	g := NewGuard(sec, 1, time.Second, 0)
	p := Probe{Duration: time.Second}
	now := sec
	b.ReportAllocs()
	for b.Loop() {
		now += ms
		p.Sent = now
		if g.Promise(1, 5, p, ProcessID{}, now) {
			sink++
		}
		if _, ok := g.Grant(1, 5, now); ok {
			sink++
		}
	}
}

// The hot paths allocate nothing, whatever the benchmarks' machine says.
func TestHotPathsDoNotAllocate(t *testing.T) {
	for _, cfg := range []quorum.JointConfig{
		voters(1, 2, 3), voters(1, 2, 3, 4, 5, 6, 7), joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}),
	} {
		l := leading(sec, cfg)
		g := NewGuard(sec, 1, time.Second, 0)
		now := sec
		allocs := testing.AllocsPerRun(100, func() {
			now += ms
			p, _ := l.Probe(now)
			g.Promise(1, 5, p, ProcessID{}, now)
			grant, _ := g.Grant(1, 5, now)
			for id := uint64(2); id < 8; id++ {
				l.Count(id, 5, grant, now)
			}
			v := l.View(now)
			sink += int(v.Check(now))
		})
		if allocs != 0 {
			t.Errorf("%v allocations for a round under %v, want 0", allocs, cfg)
		}
	}
}
