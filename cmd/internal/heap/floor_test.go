package heap

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// heapGoal returns the size at which the collector runs next.
func heapGoal() uint64 {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// The collector lets a small heap grow, unless somebody has told it how much.
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
		lower := Keep()
		if goal := heapGoal(); goal > floor != tc.raised {
			t.Errorf("GOGC=%q GOMEMLIMIT=%q: the collector runs at %d bytes, want above %d: %v", tc.gogc, tc.limit, goal, floor, tc.raised)
		}
		lower()
	}
	if goal := heapGoal(); goal > floor {
		t.Errorf("afterwards the collector still runs at %d bytes", goal)
	}
}
