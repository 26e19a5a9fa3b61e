package core

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
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

// arbitrary instants and durations, with those near the edges of int64 and of
// each other drawn often.
var (
	anyInstant  = rapid.OneOf(rapid.Custom(nearInstant), rapid.Custom(func(t *rapid.T) Instant { return Instant(rapid.Int64().Draw(t, "any")) }))
	anyDuration = rapid.OneOf(rapid.Custom(nearDuration), rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "any")) }))
)

func nearInstant(t *rapid.T) Instant {
	base := rapid.SampledFrom([]Instant{0, sec, 2 * sec, Forever, -Forever}).Draw(t, "base")
	return base.Add(time.Duration(rapid.Int64Range(-2, 2).Draw(t, "beside")))
}

func nearDuration(t *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(-int64(2*time.Second), int64(2*time.Second)).Draw(t, "duration"))
}

// viewCheckSpec is the rule for reads (docs/design.md, A read), in numbers that cannot
// overflow, and the order of the refusals.
func viewCheckSpec(v View, now Instant) Status {
	switch {
	case v.Status != Valid:
		return v.Status
	case now <= 0 || now == Forever || now < v.From:
		return ClockFault
	case now >= v.End:
		return Expired
	case now >= v.Usable:
		return Margin
	default:
		return Valid
	}
}

// viewCheckAgrees: Check says what the rule says, whatever the view holds, as
// long as it was made by a lease: readings are positive, the margin is not
// negative.
func viewCheckAgrees(t *rapid.T) {
	v := View{
		From:   max(anyInstant.Draw(t, "from"), 1),
		End:    anyInstant.Draw(t, "end"),
		Status: rapid.Custom(func(t *rapid.T) Status { return Status(rapid.IntRange(0, NumStatus-1).Draw(t, "s")) }).Draw(t, "status"),
	}
	v.Usable = v.End
	if v.End != Forever {
		v.Usable = v.End.Add(-max(anyDuration.Draw(t, "skew"), 0))
	}
	now := anyInstant.Draw(t, "now")
	got := v.Check(now)
	if want := viewCheckSpec(v, now); got != want {
		t.Fatalf("%+v.Check(%d) = %v, want %v", v, now, got, want)
	}
	limit := max(anyDuration.Draw(t, "limit"), 0)
	left := v.Remaining(now, limit)
	switch {
	case left < 0 || left > limit || (got != Valid && left != 0):
		t.Fatalf("%+v.Remaining(%d, %v) = %v, status %v", v, now, limit, left, got)
	case got == Valid && left > 0 && v.Check(now.Add(left-1)) != Valid:
		t.Fatalf("%+v.Remaining(%d, %v) = %v, but it is refused before", v, now, limit, left)
	}
}

func TestViewCheckAgrees(t *testing.T) { rapid.Check(t, viewCheckAgrees) }

func FuzzViewCheck(f *testing.F) {
	addChoices(f)
	f.Fuzz(rapid.MakeFuzz(viewCheckAgrees))
}

// countIsBounded: whatever arrives, no lease ends later than a promise made now
// would; it moves forward only, but for what voids it; and Count tells whether
// it has.
func countIsBounded(t *rapid.T) {
	n := rapid.IntRange(2, 7).Draw(t, "voters")
	l := NewLease(testParams)
	l.SetVoters(voters([]uint64{1, 2, 3, 4, 5, 6, 7}[:n]...))
	now := sec
	l.Lead(5, now)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		before := l.View(now).End
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "later")))
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0:
			l.Invalidate(anyInstant.Draw(t, "invalidate"))
			before = 0
		case 1:
			before = 0
			if r := l.Release(now); r.At < now {
				t.Fatalf("Release(%d) = %+v, want no earlier instant", now, r)
			}
		default:
			at, g := now, anyGrant(t, now)
			if rapid.IntRange(0, 5).Draw(t, "odd clock") == 0 {
				at = anyInstant.Draw(t, "clock")
			}
			from, term := rapid.Uint64Range(0, 9).Draw(t, "from"), rapid.Uint64Range(4, 6).Draw(t, "term")
			was := doubts(l, now)
			moved := l.Count(from, term, g, at)
			end := l.View(now).End
			if at.Valid() && end != before && end > at.Add(testParams.Duration) {
				t.Fatalf("Count(%d, %d, %+v, %d): end %d is beyond a promise made now", from, term, g, at, end)
			}
			if moved != (end > before) {
				t.Fatalf("Count(%d, %d, %+v, %d) = %t, end %d after %d", from, term, g, at, moved, end, before)
			}
			if doubts(l, now) != was {
				before = 0 // a doubted clock voids its voter's promise
			}
		}
		if end := l.View(now).End; end < before {
			t.Fatalf("End = %d after %d, and nothing has voided it", end, before)
		}
	}
}

// anyGrant is an answer that is nearly right, or not at all.
func anyGrant(t *rapid.T, now Instant) Grant {
	g := Grant{
		Sent:     now.Add(-time.Duration(rapid.Int64Range(-2, int64(time.Second)).Draw(t, "ago"))),
		Duration: testParams.Duration,
	}
	if rapid.Bool().Draw(t, "odd") {
		g.Sent, g.Duration = anyInstant.Draw(t, "sent"), anyDuration.Draw(t, "duration")
		g.Reading, g.Incarnation = anyInstant.Draw(t, "reading"), Incarnation(anyInstant.Draw(t, "incarnation"))
	}
	return g
}

func doubts(l *Lease, now Instant) (n int) {
	for _, p := range l.Peers(now) {
		if p.ClockSuspect {
			n++
		}
	}
	return n
}

func TestCountIsBounded(t *testing.T) { rapid.Check(t, countIsBounded) }

func FuzzCountIsBounded(f *testing.F) {
	addChoices(f)
	f.Fuzz(rapid.MakeFuzz(countIsBounded))
}
