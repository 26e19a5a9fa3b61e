package leasepage

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// shows draws processes with their notes.
func shows(all ...history) *Picture {
	timelines := readAll(all, names)
	align(timelines)
	return drawn(timelines, names, 0)
}

func kindsOf(l *Lane) (kinds []string) {
	for _, f := range l.Flags {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// again is the member's next process.
func again(t *tracedProcess, at int) history {
	next := newTraced(t.Start.ID, 0, 0, at)
	next.record(at+1, leasetrace.Event{Kind: leasetrace.KindVoters})
	return history{Process: next.Process}
}

// A process that stops says so, and one that resigns hands its lease over before it ends. A
// process that ends without either was killed.
func TestAKilledProcess(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(p *history, old *tracedProcess)
		want string
	}{
		{"it was killed", func(*history, *tracedProcess) {}, "killed"},
		{"it has said that it stops", func(p *history, old *tracedProcess) { p.notes = []note{{At: old.clock(300), Stops: true}} }, "end"},
		{"its trace has an end", func(p *history, _ *tracedProcess) { p.Ended = true }, "end"},
		{"it handed over last", func(p *history, old *tracedProcess) {
			old.record(300, leasetrace.Event{Kind: leasetrace.KindRelease, Peer: 2, Term: 2})
			old.record(1300, leasetrace.Event{Kind: leasetrace.KindVoters})
			p.Process = old.Process
		}, "end"},
		{"it handed over long before", func(p *history, old *tracedProcess) {
			old.record(300, leasetrace.Event{Kind: leasetrace.KindRelease, Peer: 2, Term: 2})
			old.record(1301, leasetrace.Event{Kind: leasetrace.KindVoters})
			p.Process = old.Process
		}, "killed"},
	} {
		old := newTraced(1, 0, 0, 10)
		old.leads(100, 2)
		old.renews(110, 2)
		p := history{Process: old.Process}
		tc.do(&p, old)
		if got := kindsOf(shows(p, again(old, 5000)).Lanes[0]); slices.Contains(got, "killed") != (tc.want == "killed") || !slices.Contains(got, tc.want) {
			t.Errorf("%s: the flags are %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A silent member was paused, unless events of that time are lost. In both cases it is not heard
// in that time.
func TestLostEventsAreNoPause(t *testing.T) {
	for _, lost := range []uint64{0, 7} {
		old := newTraced(1, 0, 0, 10)
		old.leads(100, 2)
		old.renews(110, 2)
		old.renews(1500, 2)
		for i := range old.Events[2:] {
			old.Events[2+i].Seq += lost
		}
		p := history{Process: old.Process, notes: gapNotes(old.Events)}
		lane := shows(p).Lanes[0]
		got := kindsOf(lane)
		if slices.Contains(got, "gap") != (lost > 0) || slices.Contains(got, "paused") != (lost == 0) || len(lane.Heard) != 2 {
			t.Errorf("with %d events lost the flags are %q, and it is heard in %+v, want it in two parts", lost, got, lane.Heard)
		}
	}
}

// A note has the difference to the counters before.
func TestNotesTellWhatIsNew(t *testing.T) {
	var before, now counters
	if got := now.since(&before, 5); got != nil {
		t.Errorf("nothing was counted, and %+v is noted", got)
	}
	before.lease.Reads[leaderlease.PathLease], before.leader.FalseSuspicions = 10, 1
	now.lease.Reads[leaderlease.PathLease], now.lease.Reads[leaderlease.PathForwarded] = 13, 2
	now.leader.Suspicions[detector.LongSilence], now.leader.FalseSuspicions = 1, 2
	got := now.since(&before, 5)
	want := note{At: 5, Reads: reads{leaderlease.PathLease: 3, leaderlease.PathForwarded: 2}, FalseAlarms: 1}
	want.Hints[detector.LongSilence] = 1
	if len(got) != 1 || got[0] != want {
		t.Errorf("since() = %+v, want %+v", got, want)
	}
	now = counters{} // ResetStats
	now.lease.Reads[leaderlease.PathLease] = 4
	if got := now.since(&before, 6); len(got) != 1 || got[0].Reads[leaderlease.PathLease] != 4 {
		t.Errorf("since() after a reset = %+v, want 4 reads", got)
	}
}

// Reads and flags of a note are drawn at its instant.
func TestNotesAreDrawn(t *testing.T) {
	old := newTraced(1, 0, 0, 10)
	old.renews(100, 2)
	n := note{At: old.clock(50), Reads: reads{0, 1, 2, 3, 4}, FalseAlarms: 1}
	n.Hints[detector.ConnClosed] = 1
	lane := shows(history{Process: old.Process, notes: []note{n}}).Lanes[0]
	if want := [][5]ms{{50, 1, 2, 3, 4}}; !slices.Equal(lane.Reads, want) {
		t.Errorf("the reads are %v, want %v", lane.Reads, want)
	}
	for _, f := range lane.Flags[1:3] {
		if f.At != 50 || f.Kind != "suspects" && f.Kind != "false" {
			t.Errorf("there is the flag %+v, want a suspicion and its end, at 50", f)
		}
	}
}

// Notes are bounded, by time and by number.
func TestNotesAreBounded(t *testing.T) {
	if n := len(notesSince(make([]note, 3*maxNotes), 0)); n != maxNotes {
		t.Errorf("%d notes are kept, want %d", n, maxNotes)
	}
	if got := notesSince([]note{{At: 5}, {At: 6}}, 6); len(got) != 1 || got[0].At != 6 {
		t.Errorf("since 6 there are %+v, want one", got)
	}
}

// A member that was out of reach for longer than its ring lasts has a gap.
func TestAMemberThatReturnsHasAGap(t *testing.T) {
	s := newSession(NewLive(Config{}), func() {})
	tell := func(seqs ...uint64) {
		h := remote{member: 2, history: history{reading: 9 * msec}}
		h.Start = leasetrace.Start{ID: 2}
		for _, seq := range seqs {
			h.Events = append(h.Events, leasetrace.Event{Seq: seq, At: leaderlease.Instant(seq) * msec})
		}
		s.addRemote(&h)
	}
	tell(1, 2)
	tell(2, 3)
	if got := s.others[0].notes; len(got) != 0 {
		t.Errorf("nothing is missing, and %+v is noted", got)
	}
	tell(7, 8)
	if got := s.others[0].notes; len(got) != 1 || got[0] != (note{At: 7 * msec, Lost: 3}) {
		t.Errorf("events 4 to 6 are missing, and %+v is noted", got)
	}
}

// A feed says that the member stops, also if that has ended the feed's context before, and
// says nothing if its reader has gone.
func TestAFeedSaysThatItsMemberStops(t *testing.T) {
	for _, tc := range []struct{ stops, cancels bool }{{true, false}, {true, true}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			l := alone(t, new(countingClock))
			stopping := make(chan struct{})
			l.cfg.Stopping = stopping
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last remote
			messages := 0
			err := l.Feed(ctx, func(b []byte) (err error) {
				if messages++; messages == 3 {
					if tc.stops {
						close(stopping)
					}
					if tc.cancels {
						cancel()
					}
				}
				last, err = parse(b, 1)
				return err
			})
			left := len(last.notes) == 1 && last.notes[0].Stops
			if err != nil || left != tc.stops || last.reading != 7*msec {
				t.Errorf("the feed of a member that stops (%v) with a context that ends (%v) returns %v, its last message is %+v", tc.stops, tc.cancels, err, last)
			}
		})
	}
}

// Reads of the member that draws are noted as well.
func TestOwnReadsAreNoted(t *testing.T) {
	l := alone(t, new(countingClock))
	var stats leaderlease.Stats
	l.cfg.Counted = func() (leaderlease.Stats, detector.Stats) {
		stats.Reads[leaderlease.PathJoined] += 2
		return stats, detector.Stats{}
	}
	s := testSession(l)
	s.addLocal(7 * msec)
	if got := s.own.notes; len(got) != 1 || got[0].Reads[leaderlease.PathJoined] != 2 {
		t.Errorf("%+v is noted, want two reads", got)
	}
	s.addLocal(core.Instant(0)) // the clock cannot be read
	if len(s.own.notes) != 1 {
		t.Error("something is noted at no instant")
	}
}

// Each way by which a leader is suspected has its reason.
func TestASuspicionHasItsReason(t *testing.T) {
	for way := range detector.NumCauses {
		old := newTraced(1, 0, 0, 10)
		old.renews(100, 2)
		n := note{At: old.clock(50)}
		n.Hints[way] = 1
		lane := shows(history{Process: old.Process, notes: []note{n}}).Lanes[0]
		if !slices.ContainsFunc(lane.Flags, func(f Flag) bool { return f.Kind == "suspects" && len(f.Text) > len("suspects its leader: ") }) {
			t.Errorf("the flags of a suspicion by %v are %+v, want its reason", detector.Cause(way), lane.Flags)
		}
	}
}
