package admission

import (
	"slices"
	"testing"
	"time"
)

// event is something that happens to a member at a time after its start.
type event struct {
	at   time.Duration
	do   func(s *State, now time.Time) any
	want any // a Decision, or whether the member gives up
}

const giveUp, goOn = true, false

func accepted(peer uint64) func(*State, time.Time) any {
	return func(s *State, _ time.Time) any { return s.Accepted(peer) }
}

func isForeign(peer uint64) func(*State, time.Time) any {
	return func(s *State, now time.Time) any { return s.Foreign(peer, now) }
}

func refused(peer uint64) func(*State, time.Time) any {
	return func(s *State, _ time.Time) any { s.Refused(peer); return nil }
}

func tick(s *State, now time.Time) any { return s.Tick(now) }
func opened(s *State, _ time.Time) any { s.Opened(); return nil }
func of(members ...uint64) Config {
	return Config{Self: 1, Members: members, Waits: true}
}

// refusals3 are three refusals by each peer over RefusalPatience, all but the last.
func refusals3(peers ...uint64) (events []event) {
	for _, at := range []time.Duration{0, RefusalPatience / 2, RefusalPatience} {
		for _, p := range peers {
			events = append(events, event{at, isForeign(p), goOn})
		}
	}
	return events
}

// last replaces the decision that is wanted in the end.
func last(events []event, want any) []event {
	events[len(events)-1].want = want
	return events
}

func TestTakingPart(t *testing.T) {
	const sec = time.Second
	for _, tt := range []struct {
		name   string
		cfg    Config
		events []event
	}{
		{"both others of three are needed", of(1, 2, 3), []event{{0, accepted(2), LogAccepted}, {0, accepted(3), Open}}},
		{"one that accepts twice counts once", of(1, 2, 3), []event{{0, accepted(2), LogAccepted}, {0, accepted(2), LogAccepted}}},
		{"an unknown peer does not count", of(1, 2, 3), []event{{0, accepted(2), LogAccepted}, {0, accepted(9), Nothing}}},
		{"an initial member of a cluster of two needs the other", of(1, 2), []event{{0, tick, Nothing}, {0, accepted(2), Open}}},
		{"two of four others are enough", of(1, 2, 3, 4), []event{{0, accepted(2), LogAccepted}, {0, accepted(4), Open}}},
		{"three of five", of(1, 2, 3, 4, 5), []event{{0, accepted(2), LogAccepted}, {0, accepted(4), LogAccepted}, {0, accepted(5), Open}}},
		{"it is open once that is durable, not before", of(1, 2), []event{{0, accepted(2), Open}, {0, accepted(2), Open}, {0, opened, nil}, {0, accepted(2), Nothing}}},
		{"one that took part before needs no other", Config{Self: 1, Members: []uint64{1, 2, 3}}, []event{{0, accepted(2), Nothing}}},
		{"it logs that from time to time", of(1, 2, 3), []event{
			{Reminder - 1, tick, Nothing}, {Reminder, tick, LogWaiting}, {Reminder + sec, tick, Nothing}, {2 * Reminder, tick, LogWaiting},
		}},
		{"it gives up when all others refuse it", of(1, 2, 3), last(refusals3(2, 3), giveUp)},
		{"one that takes part does not", Config{Self: 1, Members: []uint64{1, 2, 3}}, refusals3(2, 3)},
		{"nor while one of them does not answer", of(1, 2, 3), refusals3(2)},
		{"nor if unknown peers do", of(1, 2, 3), refusals3(2, 9)},
		{"nor if one has accepted it meanwhile", of(1, 2, 3, 4, 5), slices.Insert(refusals3(2, 3, 4, 5), 6, event{RefusalPatience / 2, accepted(2), LogAccepted})},
		{"nor if one has another reason meanwhile", of(1, 2), slices.Insert(refusals3(2), 1, event{0, refused(2), nil})},
		{"nor too soon", of(1, 2), []event{{0, isForeign(2), goOn}, {0, isForeign(2), goOn}, {RefusalPatience - 1, isForeign(2), goOn}}},
		{"nor after two", of(1, 2), []event{{0, isForeign(2), goOn}, {RefusalPatience, isForeign(2), goOn}}},
		{"old refusals do not count", of(1, 2), []event{
			{0, isForeign(2), goOn},
			{1, isForeign(2), goOn},
			{refusalMemory + 2, isForeign(2), goOn},
			{refusalMemory + 2, isForeign(2), goOn},
			{refusalMemory + 2 + RefusalPatience, isForeign(2), giveUp},
		}},
		{"nor those of one that has gone", of(1, 2, 3), slices.Concat(
			[]event{{0, isForeign(2), goOn}, {0, isForeign(2), goOn}, {0, isForeign(2), goOn}},
			[]event{{5 * sec, isForeign(3), goOn}, {10 * sec, isForeign(3), goOn}, {refusalMemory + sec, isForeign(3), goOn}},
		)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			s := New(tt.cfg, start)
			for i, e := range tt.events {
				if got := e.do(s, start.Add(e.at)); got != e.want {
					t.Errorf("event %d at %v: %v, want %v", i, e.at, got, e.want)
				}
			}
		})
	}
}

func TestAwaited(t *testing.T) {
	s := New(of(1, 2, 3, 4), time.Unix(0, 0))
	for _, step := range []struct {
		peer    uint64
		want    []uint64
		missing int
	}{{9, []uint64{2, 3, 4}, 2}, {3, []uint64{2, 4}, 1}, {2, []uint64{4}, 0}} {
		s.Accepted(step.peer)
		if got := s.Awaited(); !slices.Equal(got, step.want) || s.Missing() != step.missing {
			t.Errorf("after %d: Awaited() = %v, Missing() = %d, want %v, %d", step.peer, got, s.Missing(), step.want, step.missing)
		}
	}
	if s.IsOpen() {
		t.Error("IsOpen() before Opened")
	}
	if s.Opened(); !s.IsOpen() || s.Awaited() != nil {
		t.Errorf("IsOpen() = %v, Awaited() = %v once it takes part", s.IsOpen(), s.Awaited())
	}
}
