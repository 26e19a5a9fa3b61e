package double

import (
	"slices"
	"testing"
)

func TestTakeSwapsAndLetsGo(t *testing.T) {
	a, b := new(1), new(2)
	queue, spare := []*int{a, b}, []*int{b}
	taken := Take(&queue, spare)
	if !slices.Equal(taken, []*int{a, b}) || len(queue) != 0 || cap(queue) != cap(spare) || spare[0] != nil {
		t.Errorf("Take() = %v, queue %v, spare %v; want what was queued, and the spare array emptied in its place", taken, queue, spare)
	}
	if got := Take(&queue, nil); len(got) != 0 {
		t.Errorf("Take() of nothing = %v", got)
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	queue, spare := make([]int, 0, 1), make([]int, 0, 1)
	if n := testing.AllocsPerRun(100, func() {
		queue = append(queue, 1)
		spare = Take(&queue, spare)
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
