package wire

import (
	"testing"
)

// Events come as numbers; a negative number comes with a revision below the one
// before.
func TestAWatcherSeesEachEventOnceAndInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []int64
		failed int64 // a put nobody knows the fate of
		upTo   int64
		want   Disorder
	}{
		{"nothing written", nil, 0, 0, Disorder{}},
		{"all in order", []int64{1, 2, 3}, 0, 3, Disorder{}},
		{"the first is missing", []int64{2, 3}, 0, 3, Disorder{Missing: 1}},
		{"one in between is missing", []int64{1, 3}, 0, 3, Disorder{Missing: 1}},
		{"the last two are missing", []int64{1}, 0, 3, Disorder{Missing: 2}},
		{"nothing came", nil, 0, 3, Disorder{Missing: 3}},
		{"one comes twice in a row", []int64{1, 2, 2, 3}, 0, 3, Disorder{Duplicate: 1}},
		{"one comes again later", []int64{1, 2, 3, 1}, 0, 3, Disorder{Duplicate: 1}},
		{"two are swapped", []int64{2, 1, 3}, 0, 3, Disorder{OutOfOrder: 1}},
		{"numbers rise and revisions do not", []int64{1, -2, 3}, 0, 3, Disorder{OutOfOrder: 1}},
		{"a put that failed had no effect", []int64{1, 3}, 2, 3, Disorder{}},
		{"a put that failed had its effect", []int64{1, 2, 3}, 2, 3, Disorder{}},
		{"a put that failed took effect late", []int64{1, 3, 2}, 2, 3, Disorder{}},
		{"a put that failed takes effect twice", []int64{1, 2, 3, 2}, 2, 3, Disorder{Duplicate: 1}},
		{"a put that failed was the last", []int64{1, 2}, 3, 3, Disorder{}},
	} {
		var o order
		failed := func(n int64) bool { return n == c.failed }
		rev := int64(10)
		for _, n := range c.events {
			rev++
			if n < 0 {
				o.see(-n, rev-2, failed)
				continue
			}
			o.see(n, rev, failed)
		}
		o.end(c.upTo, failed)
		if o.Disorder != c.want {
			t.Errorf("%s: events %v of puts up to %d are %+v, want %+v", c.name, c.events, c.upTo, o.Disorder, c.want)
		}
	}
}

// What was swapped and comes again counts as what it is.
func TestAnEventIsNewOnce(t *testing.T) {
	var o order
	never := func(int64) bool { return false }
	for i, c := range []struct {
		number int64
		want   bool
	}{{2, true}, {1, true}, {1, false}, {2, false}, {3, true}} {
		if got := o.see(c.number, int64(i+1), never); got != c.want {
			t.Errorf("see(%d) for the time number %d = %v, want %v", c.number, i+1, got, c.want)
		}
	}
}
