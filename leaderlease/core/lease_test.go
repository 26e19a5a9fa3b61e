package core

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestLeaseStatus(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *Lease)
		want Status
	}{
		{"nothing stands against it", func(*Lease) {}, Valid},
		{"closed is the strongest", func(l *Lease) { l.Close(); l.SetDisabled(true); l.StepDown() }, Closed},
		{"disabled", func(l *Lease) { l.SetDisabled(true); l.StepDown() }, Disabled},
		{"enabled again", func(l *Lease) { l.SetDisabled(true); l.SetDisabled(false) }, Valid},
		{"the restart hold explains why it does not lead", func(l *Lease) { l.SetRestartHold(true); l.StepDown() }, RestartHold},
		{"the restart hold is no reason against a leader", func(l *Lease) { l.SetRestartHold(true) }, Valid},
		{"stepped down", func(l *Lease) { l.SetConfPending(true); l.SetDiskStalled(true); l.StepDown() }, NotLeader},
		{"leads a configuration it is not in", func(l *Lease) { l.SetVoters(voters(2, 3)); l.SetConfPending(true) }, NotVoter},
		{"leads no configuration", func(l *Lease) { l.SetVoters(voters()) }, NotVoter},
		{"no entry of its own term", func(l *Lease) { l.Lead(6, 3*sec); l.SetConfPending(true) }, NoOwnTermCommit},
		{"a change is committed and not told", func(l *Lease) { l.SetConfPending(true); l.Release(2 * sec) }, ConfPending},
		{"transferring", func(l *Lease) { l.Release(2 * sec); l.FailClock() }, Transferring},
		{"the clock", func(l *Lease) { l.FailClock(); l.SetDiskStalled(true) }, ClockFault},
		{"the disk", func(l *Lease) { l.SetDiskStalled(true) }, DiskStalled},
		{"the disk answers again", func(l *Lease) { l.SetDiskStalled(true); l.SetDiskStalled(false) }, Valid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			grants(l, 2*sec, 2*sec, 2, 3)
			tt.do(l)
			if v := l.View(2 * sec); v.Status != tt.want {
				t.Errorf("View().Status = %v, want %v", v.Status, tt.want)
			}
		})
	}
}

// A node leads for as long as no step-down is reported; what ends with a term
// must not leak into the next.
func TestTermsAreApart(t *testing.T) {
	l := leading(sec, voters(1, 2, 3))
	grants(l, 1500*ms, 2*sec, 2, 3)
	l.Release(2 * sec)
	l.FailClock()

	l.Lead(6, 3*sec)
	v := l.View(3 * sec)
	if v.Term != 6 || v.End != 0 || v.Status != NoOwnTermCommit {
		t.Errorf("View() of a new term = %+v, want term 6 with no end and no commit", v)
	}
	if p, ok := l.Probe(3 * sec); !ok || p.Sent != 3*sec {
		t.Errorf("Probe() in a new term = %+v, %t, want one sent now", p, ok)
	}
	l.OwnTermCommitted()
	grants(l, 3*sec, 3*sec, 2)
	if s := new(l.View(3 * sec)).Check(3 * sec); s != Valid {
		t.Errorf("Check() in a new term = %v, want valid", s)
	}

	l.Lead(6, 3500*ms)
	if got := l.View(3500 * ms).End; got != 4*sec || !l.HasOwnTermCommit() {
		t.Errorf("End = %d after Lead of the same term again, want nothing changed", got)
	}
	l.StepDown()
	if l.Term() != 0 || l.HasOwnTermCommit() {
		t.Errorf("Term() = %d, HasOwnTermCommit() = %t after StepDown, want none", l.Term(), l.HasOwnTermCommit())
	}
	if l.Count(2, 6, Grant{Sent: 3500 * ms, Duration: time.Second}, 3600*ms); l.View(3600*ms).End != 0 {
		t.Error("a grant after StepDown revived the lease")
	}
}

func TestProbe(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *Lease)
		now  Instant
		want bool
	}{
		{"a leader probes", func(*Lease) {}, 2 * sec, true},
		{"a follower does not", func(l *Lease) { l.StepDown() }, 2 * sec, false},
		{"a closed one does not", func(l *Lease) { l.Close() }, 2 * sec, false},
		{"a disabled one does not", func(l *Lease) { l.SetDisabled(true) }, 2 * sec, false},
		{"not with a failed clock", func(l *Lease) { l.FailClock() }, 2 * sec, false},
		{"not without a reading", func(*Lease) {}, 0, false},
		{"not at Forever", func(*Lease) {}, Forever, false},
		{"the last moment of a transfer", func(l *Lease) { l.Release(2 * sec) }, 3200*ms - 1, false},
		{"the transfer can no longer succeed", func(l *Lease) { l.Release(2 * sec) }, 3200 * ms, true},
		{"an invalidated lease is renewed", func(l *Lease) { l.Invalidate(2 * sec) }, 2 * sec, true},
		{"an uncommitted term begins to renew", func(l *Lease) { l.Lead(6, 2*sec) }, 2 * sec, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			tt.do(l)
			p, ok := l.Probe(tt.now)
			if ok != tt.want {
				t.Errorf("Probe(%d) = %+v, %t, want %t", tt.now, p, ok, tt.want)
			}
			if ok && p != (Probe{Sent: tt.now, Duration: time.Second}) {
				t.Errorf("Probe(%d) = %+v, want sent now for one second", tt.now, p)
			}
		})
	}
}

// The release names every probe that has been sent, also when the clock went
// back in between, and no earlier release is taken back (L6).
func TestReleaseInstant(t *testing.T) {
	l := leading(sec, voters(1, 2, 3))
	for _, step := range []struct {
		name string
		now  Instant
		want Instant
	}{
		{"in the moment the term begins", sec, sec},
		{"later", 2 * sec, 2 * sec},
		{"a clock that went back", 1500 * ms, 2 * sec},
		{"a clock that cannot be read", 0, 2 * sec},
	} {
		if got := l.Release(step.now); got != (Release{Term: 5, At: step.want}) {
			t.Errorf("%s: Release(%d) = %+v, want term 5 at %d", step.name, step.now, got, step.want)
		}
	}
}

// A clock that failed gives no lease until it can be read again, and then by
// what is sent from there on. In the next term nothing of it is left.
func TestFailClockLastsUntilItStartsOver(t *testing.T) {
	l := leading(sec, voters(1, 2, 3))
	grants(l, 1500*ms, 2*sec, 2)
	l.FailClock()
	if l.Count(3, 5, Grant{Sent: 1900 * ms, Duration: time.Second}, 2*sec) {
		t.Error("Count() after FailClock = true, want false")
	}
	l.Lead(5, 3*sec)
	if s := l.View(3 * sec).Status; s != ClockFault {
		t.Errorf("View().Status = %v after Lead of the same term, want clock", s)
	}
	l.StartOver(3 * sec)
	if l.Count(3, 5, Grant{Sent: 3 * sec, Duration: time.Second}, 3*sec) {
		t.Error("Count() of a probe from before StartOver = true, want false")
	}
	if !l.Count(3, 5, Grant{Sent: 3*sec + 1, Duration: time.Second}, 3*sec+1) {
		t.Error("Count() of a probe from after StartOver = false, want true")
	}

	l.FailClock()
	l.Lead(6, 3*sec)
	l.OwnTermCommitted()
	if s := l.View(3 * sec).Status; s != Valid {
		t.Errorf("View().Status = %v in the next term, want valid", s)
	}

	l.StepDown()
	l.FailClock()
	l.Lead(7, 4*sec)
	l.OwnTermCommitted()
	if s := l.View(4 * sec).Status; s != Valid {
		t.Errorf("View().Status = %v, want valid: no term saw the clock fail", s)
	}
}

// After a step back send instants go on growing, by what they have to: an answer
// to a probe from before never counts, one to a later probe does, and the lease
// it gives is measured by the clock as it is now.
func TestSendInstantsGrowWhenTheClockGoesBack(t *testing.T) {
	l := leading(10*sec, voters(1, 2, 3))
	old, _ := l.Probe(11 * sec)
	for _, now := range []Instant{3 * sec, sec, 5 * sec} {
		l.StartOver(now)
		if v := l.View(now); v.End != 0 || v.Status != ClockFault {
			t.Errorf("View() after StartOver(%d) = %+v, want no end, because of the clock", now, v)
		}
		p, ok := l.Probe(now + 1)
		if !ok || p.Sent <= old.Sent {
			t.Errorf("Probe() after StartOver(%d) = %+v, %t, want one sent after %d", now, p, ok, old.Sent)
		}
		if l.Count(2, 5, Grant{Sent: old.Sent, Duration: time.Second}, now+2) {
			t.Errorf("Count() of a probe from before StartOver(%d) = true, want false", now)
		}
		if l.Count(2, 5, Grant{Sent: p.Sent + 2, Duration: time.Second}, now+2) {
			t.Errorf("Count() of a probe from the future after StartOver(%d) = true, want false", now)
		}
		l.Count(2, 5, Grant{Sent: p.Sent, Duration: time.Second}, now+2)
		if v, want := l.View(now+2), (now + 1).Add(time.Second); v.End != want || v.Status != Valid {
			t.Errorf("View() = %+v once a probe from after StartOver(%d) is answered, want one that ends at %d", v, now, want)
		}
		old = p
	}
}

// Without a clock there is no term to measure from.
func TestLeadWithoutClock(t *testing.T) {
	for _, now := range []Instant{0, -1, math.MinInt64, Forever} {
		l := leading(now, voters(1, 2, 3))
		grants(l, sec, 2*sec, 2, 3)
		if v := l.View(2 * sec); v.Check(2*sec) != ClockFault {
			t.Errorf("Check() = %v in a term that began at %d, want clock", v.Check(2*sec), now)
		}
	}
}

// The zero Lease grants nothing, and a lease without a single right parameter
// asks for nothing.
func TestZeroLease(t *testing.T) {
	var l Lease
	if p, ok := l.Probe(sec); ok {
		t.Errorf("zero Lease: Probe() = %+v, want none", p)
	}
	if l.Count(2, 0, Grant{Sent: sec, Duration: time.Second}, sec) || l.Count(0, 0, Grant{}, 0) {
		t.Error("zero Lease: Count() = true, want false")
	}
	if v := l.View(sec); v.Check(sec) != NotLeader {
		t.Errorf("zero Lease: Check() = %v, want not_leader", v.Check(sec))
	}
	l.Lead(1, sec)
	l.OwnTermCommitted()
	if v := l.View(sec); v.Check(sec) != NotVoter {
		t.Errorf("zero Lease that leads: Check() = %v, want not_voter", v.Check(sec))
	}
	l.Lead(0, 2*sec)
	if v := l.View(2 * sec); v.Term != 0 || v.Check(2*sec) != NotLeader {
		t.Errorf("View() after Lead(0) = %+v, want not_leader", v)
	}
}

// A view carries the reading it was made at, or the first one there can be.
func TestViewFrom(t *testing.T) {
	l := leading(sec, voters(1, 2, 3))
	for now, want := range map[Instant]Instant{2 * sec: 2 * sec, 1: 1, 0: 1, math.MinInt64: 1} {
		if got := l.View(now).From; got != want {
			t.Errorf("View(%d).From = %d, want %d", now, got, want)
		}
	}
}

func TestPeers(t *testing.T) {
	l := leading(sec, voters(3, 1, 2))
	l.Count(3, 5, Grant{Sent: 1500 * ms, Duration: 700 * time.Millisecond}, 1600*ms)
	want := []PeerInfo{
		{ID: 2, GrantAge: -1},
		{ID: 3, Promised: 200 * time.Millisecond, GrantAge: 400 * time.Millisecond, Duration: 700 * time.Millisecond},
	}
	if got := l.Peers(2 * sec); !slices.Equal(got, want) {
		t.Errorf("Peers() = %+v, want %+v", got, want)
	}
	want[1].Promised, want[1].GrantAge = 0, 8400*time.Millisecond
	if got := l.Peers(10 * sec); !slices.Equal(got, want) {
		t.Errorf("Peers() much later = %+v, want %+v", got, want)
	}
	// What was granted last outlives the term, what was promised does not.
	l.StepDown()
	want[1].GrantAge = 400 * time.Millisecond
	if got := l.Peers(2 * sec); !slices.Equal(got, want) {
		t.Errorf("Peers() after StepDown = %+v, want %+v", got, want)
	}
}

// A release names every probe that was sent, also if the clock has gone back
// since: or voters that promised to one would not let the transfer through.
func TestReleaseCoversProbesOfALaterClock(t *testing.T) {
	l := NewLease(testParams)
	l.Lead(5, 1000)
	l.Probe(2000)
	if r := l.Release(1500); r.At < 2000 {
		t.Errorf("Release(1500).At = %d, want at least 2000, the newest probe", r.At)
	}
}

// A transfer that was under way when the clock went back does not keep the lease
// away for as long as the clock went back.
func TestTransferEndsAlsoIfTheClockGoesBack(t *testing.T) {
	l := leading(3600*sec, voters(1, 2, 3))
	l.Release(3600 * sec)
	l.StartOver(sec)
	if _, ok := l.Probe(2200*ms - 1); ok {
		t.Error("Probe() while the transfer can still succeed, want none")
	}
	if _, ok := l.Probe(2200 * ms); !ok {
		t.Error("Probe() = none one election timeout later, want one")
	}
}

// Which probes an answer may count for (L2). The term began at 1s, its lease
// was given up at 2s, and the answer arrives at 3s.
func TestCountSendInstant(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent Instant
		want Instant // the promise that is counted
	}{
		{"no reading", 0, 0},
		{"a negative reading", math.MinInt64, 0},
		{"before the term", sec - 1, 0},
		{"in the term, before the invalidation", 2*sec - 1, 0},
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

// The term's first moment counts: raft may send the first heartbeat in the
// Ready that makes the node leader.
func TestCountFromStartOfTerm(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent Instant
		want Instant
	}{
		{"the moment before the term", sec - 1, 0},
		{"the first moment of the term", sec, 2 * sec},
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

// Anything that is not a voter's promise to this term is ignored.
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
		{"a promise to this term counts", 2, 5, good, 2 * sec, 2500 * ms},
		{"of an earlier term", 2, 4, good, 2 * sec, 0},
		{"of a later term", 2, 6, good, 2 * sec, 0},
		{"of no term", 2, 0, good, 2 * sec, 0},
		{"from a stranger or a learner", 4, 5, good, 2 * sec, 0},
		{"from no member", 0, 5, good, 2 * sec, 0},
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
