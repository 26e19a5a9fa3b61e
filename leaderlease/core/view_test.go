package core

import (
	"math"
	"testing"
	"time"
)

func TestViewCheck(t *testing.T) {
	held := View{Term: 5, From: 100 * ms, End: 1050 * ms, Usable: 850 * ms, Status: Valid}
	sole := View{Term: 5, From: 100 * ms, End: Forever, Usable: Forever, Status: Valid}
	stalled := held
	stalled.Status = DiskStalled
	var zero View
	for _, tt := range []struct {
		name string
		view View
		now  Instant
		want Status
	}{
		{"a zero view refuses", zero, 200 * ms, None},
		{"a zero view refuses without a clock", zero, 0, None},
		{"the reading before the view was made", held, 100*ms - 1, ClockFault},
		{"the reading at which the view was made", held, 100 * ms, Valid},
		{"last usable instant", held, 850*ms - 1, Valid},
		{"margin begins", held, 850 * ms, Margin},
		{"last instant of the margin", held, 1050*ms - 1, Margin},
		{"expired", held, 1050 * ms, Expired},
		{"long expired", held, maxReading - 1, Expired},
		{"a clock that cannot be read", held, 0, ClockFault},
		{"a negative reading", held, math.MinInt64, ClockFault},
		{"Forever is no reading", held, Forever, ClockFault},
		{"a reason of its own comes before the margin", stalled, 900 * ms, DiskStalled},
		{"a reason of its own comes before expiry", stalled, 2 * sec, DiskStalled},
		{"a reason of its own refuses in time", stalled, 200 * ms, DiskStalled},
		{"a sole voter serves on", sole, Forever - 1, Valid},
		{"a sole voter needs a clock", sole, 0, ClockFault},
		{"a sole voter needs a real reading", sole, Forever, ClockFault},
		{"no quorum has answered", View{Term: 5, From: 100 * ms, Usable: -200 * ms, Status: Valid}, 100 * ms, Expired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.view.Check(tt.now); got != tt.want {
				t.Errorf("%+v.Check(%d) = %v, want %v", tt.view, tt.now, got, tt.want)
			}
		})
	}
}

func TestViewRemaining(t *testing.T) {
	held := View{Term: 5, From: 100 * ms, End: 1050 * ms, Usable: 850 * ms, Status: Valid}
	sole := View{Term: 5, From: 100 * ms, End: Forever, Usable: Forever, Status: Valid}
	for _, tt := range []struct {
		name  string
		view  View
		now   Instant
		limit time.Duration
		want  time.Duration
	}{
		{"until the margin, not until the end", held, 150 * ms, time.Second, 700 * time.Millisecond},
		{"last usable instant", held, 850*ms - 1, time.Second, 1},
		{"margin begins", held, 850 * ms, time.Second, 0},
		{"never negative after the end", held, 2 * sec, time.Second, 0},
		{"nothing before the view was made", held, 100*ms - 1, time.Second, 0},
		{"at most the limit", held, 150 * ms, 699 * time.Millisecond, 699 * time.Millisecond},
		{"a sole voter has the limit", sole, 150 * ms, time.Second, time.Second},
		{"a zero view has nothing", View{}, 150 * ms, time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.view.Remaining(tt.now, tt.limit); got != tt.want {
				t.Errorf("Remaining(%d, %v) = %v, want %v", tt.now, tt.limit, got, tt.want)
			}
		})
	}
}

// A status is a metric's label and a trailer's value, so each has one name.
func TestStatusNames(t *testing.T) {
	seen := make(map[string]Status)
	for s := range Status(NumStatus) {
		name := s.String()
		if other, twice := seen[name]; twice || name == "" || name == "unknown" {
			t.Errorf("Status(%d).String() = %q, as is Status(%d)", s, name, other)
		}
		seen[name] = s
	}
	for _, s := range []Status{Status(NumStatus), math.MaxUint8} {
		if got := s.String(); got != "unknown" {
			t.Errorf("Status(%d).String() = %q, want unknown", s, got)
		}
	}
	if None != 0 || int(Valid) != NumStatus-1 {
		t.Errorf("None = %d, Valid = %d, want the first and the last of %d", None, Valid, NumStatus)
	}
}
