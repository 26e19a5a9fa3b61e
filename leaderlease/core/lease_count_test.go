package core

import (
	"math"
	"testing"
	"time"
)

// Which probes an answer may count for (L2). The reign began at 1s, its lease
// was given up at 2s, and the answer arrives at 3s.
func TestCountSendInstant(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent Instant
		want Instant // the promise that is counted
	}{
		{"no reading", 0, 0},
		{"a negative reading", math.MinInt64, 0},
		{"before the reign", sec - 1, 0},
		{"in the reign, before the invalidation", 2*sec - 1, 0},
		{"at the invalidation", 2 * sec, 0},
		{"just after the invalidation", 2*sec + 1, 3*sec + 1},
		{"just before the answer", 3*sec - 1, 4*sec - 1},
		{"at the answer", 3 * sec, 4 * sec},
		{"later than the answer", 3*sec + 1, 0},
		{"in another age", Forever, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			l.Invalidate(2 * sec)
			renewed := l.Count(2, 5, Grant{Sent: tt.sent, Duration: time.Second}, 3*sec)
			if end := l.View(3 * sec).End; end != tt.want || renewed != (tt.want != 0) {
				t.Errorf("Count(sent %d) = %t with end %d, want end %d", tt.sent, renewed, end, tt.want)
			}
		})
	}
}

// The reign's first moment counts: raft may send the first heartbeat in the
// Ready that makes the node leader.
func TestCountFromStartOfReign(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent Instant
		want Instant
	}{
		{"the moment before the reign", sec - 1, 0},
		{"the first moment of the reign", sec, 2 * sec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			grants(l, tt.sent, 2*sec, 2)
			if end := l.View(2 * sec).End; end != tt.want {
				t.Errorf("End = %d after a grant sent at %d, want %d", end, tt.sent, tt.want)
			}
		})
	}
}

// Anything that is not a voter's promise to this reign is ignored.
func TestCountRefuses(t *testing.T) {
	good := Grant{Sent: 1500 * ms, Duration: time.Second}
	for _, tt := range []struct {
		name string
		from uint64
		term uint64
		g    Grant
		now  Instant
		want Instant
	}{
		{"a promise to this reign counts", 2, 5, good, 2 * sec, 2500 * ms},
		{"of an earlier term", 2, 4, good, 2 * sec, 0},
		{"of a later term", 2, 6, good, 2 * sec, 0},
		{"of no term", 2, 0, good, 2 * sec, 0},
		{"from a stranger or a learner", 4, 5, good, 2 * sec, 0},
		{"from nobody", 0, 5, good, 2 * sec, 0},
		{"from itself", 1, 5, good, 2 * sec, 0},
		{"for no time", 2, 5, Grant{Sent: 1500 * ms}, 2 * sec, 0},
		{"for negative time", 2, 5, Grant{Sent: 1500 * ms, Duration: -1}, 2 * sec, 0},
		{"for the shortest time", 2, 5, Grant{Sent: 1500 * ms, Duration: 1}, 2 * sec, 1500*ms + 1},
		{"for less than asked is believed", 2, 5, Grant{Sent: 1500 * ms, Duration: 900 * time.Millisecond}, 2 * sec, 2400 * ms},
		{"for more than asked is not", 2, 5, Grant{Sent: 1500 * ms, Duration: time.Hour}, 2 * sec, 2500 * ms},
		{"for absurdly long is not", 2, 5, Grant{Sent: 1500 * ms, Duration: math.MaxInt64}, 2 * sec, 2500 * ms},
		{"while the clock cannot be read", 2, 5, good, 0, 0},
		{"while the clock reads Forever", 2, 5, good, Forever, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			renewed := l.Count(tt.from, tt.term, tt.g, tt.now)
			if end := l.View(2 * sec).End; end != tt.want || renewed != (tt.want != 0) {
				t.Errorf("Count(%d, %d, %+v, %d) = %t with end %d, want end %d", tt.from, tt.term, tt.g, tt.now, renewed, end, tt.want)
			}
		})
	}
}

// One voter's late or repeated answer never takes back what it promised, and
// only an answer that moves the quorum's end is a renewal.
func TestCountKeepsTheNewest(t *testing.T) {
	l := leading(sec, voters(1, 2, 3, 4, 5))
	for _, step := range []struct {
		name    string
		from    uint64
		sent    Instant
		renewed bool
		end     Instant
	}{
		{"one of five is no quorum with the leader", 2, 1500 * ms, false, 0},
		{"the second is", 3, 1400 * ms, true, 2400 * ms},
		{"its duplicate is no renewal", 3, 1400 * ms, false, 2400 * ms},
		{"an older answer takes nothing back", 3, 1300 * ms, false, 2400 * ms},
		{"the slower one has to move", 2, 1600 * ms, false, 2400 * ms},
		{"the slower one moves", 3, 1550 * ms, true, 2550 * ms},
		{"a fourth voter replaces it", 4, 1580 * ms, true, 2580 * ms},
		{"the least step forward is one", 4, 1580*ms + 1, true, 2580*ms + 1},
	} {
		renewed := l.Count(step.from, 5, Grant{Sent: step.sent, Duration: time.Second}, 2*sec)
		if end := l.View(2 * sec).End; renewed != step.renewed || end != step.end {
			t.Errorf("%s: Count(%d, sent %d) = %t with end %d, want %t with end %d",
				step.name, step.from, step.sent, renewed, end, step.renewed, step.end)
		}
	}
}
