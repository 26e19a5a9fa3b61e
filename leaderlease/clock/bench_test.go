package clock

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkNow compares every clock with time.Now, called the way users call a
// clock: through the interface.
func BenchmarkNow(b *testing.B) {
	arms := []struct {
		name  string
		clock Clock
	}{
		{"vdso", System()},
		{"syscall", Boottime()},
		{"runtime", Runtime()},
		{"time.Now", wallClock{}},
	}
	for _, arm := range arms {
		if arm.name == "vdso" && !isVDSO(arm.clock) {
			continue
		}
		b.Run("clock="+arm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				arm.clock.Now()
			}
		})
		b.Run(fmt.Sprintf("clock=%s/procs=2", arm.name), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					arm.clock.Now()
				}
			})
		})
	}
}

func isVDSO(c Clock) bool {
	name := Describe(c).Name
	return len(name) >= 4 && name[:4] == "vdso"
}
