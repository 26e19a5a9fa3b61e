package load

import (
	"testing"
	"testing/synctest"
	"time"
)

// A pause counts from the answer before it, also one that has not ended yet.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Load{}
		l.failed.Add(5)
		p := l.Pauses()
		for _, quiet := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 40 * time.Millisecond} {
			time.Sleep(quiet)
			l.reads.Add(1)
		}
		l.failed.Add(2)
		time.Sleep(time.Millisecond)
		reads, writes, failed := p.End()
		const off = 10 * time.Millisecond // it looks each 5 ms
		if d := reads - 300*time.Millisecond; d.Abs() > off {
			t.Errorf("End() = %v without a read, want 300ms, give or take %v", reads, off)
		}
		if d := writes - 361*time.Millisecond; d.Abs() > off {
			t.Errorf("End() = %v without a write, want 361ms, give or take %v", writes, off)
		}
		if failed != 2 {
			t.Errorf("End() = %d failed, want 2", failed)
		}
	})
}

// What clients were told of never goes back.
func TestNewest(t *testing.T) {
	l := &Load{}
	for _, revision := range []int64{3, 7, 5} {
		l.told(revision)
	}
	if got := l.Newest(); got != 7 {
		t.Errorf("Newest() = %d, want 7", got)
	}
}
