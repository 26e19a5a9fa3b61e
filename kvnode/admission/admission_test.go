package admission

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// event is something that happens to a member at a time after its start.
type event struct {
	at   time.Duration
	do   func(s *State, now time.Time) Decision
	want Decision
}

var (
	silence    = Decision{}
	waits      = Decision{Say: Waits}
	stillWaits = Decision{Say: StillWaits}
	foreign    = Decision{Say: Foreign}
	open       = Decision{Open: true}
	giveUp     = Decision{GiveUp: true}
	campaign   = Decision{Campaign: true}
	errAsking  = errors.New("cannot be asked")
)

func accepted(peer uint64) func(*State, time.Time) Decision {
	return func(s *State, _ time.Time) Decision { return s.Accepted(peer) }
}

func isForeign(peer uint64) func(*State, time.Time) Decision {
	return func(s *State, now time.Time) Decision { return s.Foreign(peer, now) }
}

func refused(peer uint64) func(*State, time.Time) Decision {
	return func(s *State, _ time.Time) Decision { s.Refused(peer); return silence }
}

func tick(s *State, now time.Time) Decision { return s.Tick(now, Known{Voters: []uint64{1, 2, 3}}) }
func asks(s *State, _ time.Time) Decision   { s.Asks(); return silence }
func opened(s *State, _ time.Time) Decision { s.Opened(); return silence }
func asked(claims bool, err error) func(*State, time.Time) Decision {
	return func(s *State, now time.Time) Decision { return s.Asked(claims, err, now) }
}

func of(members ...uint64) Config {
	return Config{Self: 1, Members: members, Waits: true, ElectionTicks: 10, Patience: AlonePatience}
}

func alone(c Config) Config { c.Alone = true; return c }

// refusals3 are three refusals by each peer over RefusalPatience, all but the last.
func refusals3(peers ...uint64) (events []event) {
	for _, at := range []time.Duration{0, RefusalPatience / 2, RefusalPatience} {
		for _, p := range peers {
			events = append(events, event{at, isForeign(p), foreign})
		}
	}
	return events
}

// last replaces the decision that is wanted in the end.
func last(events []event, want Decision) []event {
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
		{"two of three others' word is enough", of(1, 2, 3), []event{{0, accepted(2), waits}, {0, accepted(3), open}}},
		{"one that accepts twice counts once", of(1, 2, 3), []event{{0, accepted(2), waits}, {0, accepted(2), waits}}},
		{"a stranger's word does not count", of(1, 2, 3), []event{{0, accepted(2), waits}, {0, accepted(9), silence}}},
		{"a founder of two needs the other", of(1, 2), []event{{0, tick, silence}, {0, accepted(2), open}}},
		{"two of four others are enough", of(1, 2, 3, 4), []event{{0, accepted(2), waits}, {0, accepted(4), open}}},
		{"three of five", of(1, 2, 3, 4, 5), []event{{0, accepted(2), waits}, {0, accepted(4), waits}, {0, accepted(5), open}}},
		{"it is open once that is durable, not before", of(1, 2), []event{{0, accepted(2), open}, {0, accepted(2), open}, {0, opened, silence}, {0, accepted(2), silence}}},
		{"one that took part before needs nobody", Config{Self: 1, Members: []uint64{1, 2, 3}}, []event{{0, accepted(2), silence}}},
		{"it says so once in a while", of(1, 2, 3), []event{
			{Reminder - 1, tick, silence}, {Reminder, tick, stillWaits}, {Reminder + sec, tick, silence}, {2 * Reminder, tick, stillWaits},
		}},
		{"who founds alone waits for claims", alone(of(1)), []event{{0, tick, silence}, {AlonePatience - 1, tick, silence}, {AlonePatience, tick, open}}},
		{"who founds alone does not say it waits", alone(Config{Self: 1, Members: []uint64{1}, Waits: true, Patience: 2 * Reminder}), []event{{Reminder, tick, silence}}},
		{"who claims it is asked first", alone(of(1)), []event{
			{sec, asks, silence},
			{sec, asks, silence},
			{AlonePatience, tick, silence},
			{8 * sec, asked(false, nil), silence},
			{8 * sec, tick, silence},
			{9 * sec, asked(false, nil), silence},
			{9 * sec, tick, open},
		}},
		{"a claim that is true ends it", alone(of(1)), []event{{sec, asks, silence}, {2 * sec, asked(true, nil), giveUp}}},
		{"a claim after it takes part does not", alone(of(1)), []event{{0, asks, silence}, {0, opened, silence}, {sec, asked(true, nil), silence}}},
		{"who cannot be asked holds it up", alone(of(1)), []event{
			{sec, asks, silence}, {5 * sec, asked(false, errAsking), silence}, {5*sec + AlonePatience - 1, tick, silence}, {5*sec + AlonePatience, tick, open},
		}},
		{"it gives up when all others refuse it", of(1, 2, 3), last(refusals3(2, 3), giveUp)},
		{"one that takes part does not", Config{Self: 1, Members: []uint64{1, 2, 3}}, refusals3(2, 3)},
		{"nor while one of them says nothing", of(1, 2, 3), refusals3(2)},
		{"nor if strangers do", of(1, 2, 3), refusals3(2, 9)},
		{"nor if one has accepted it meanwhile", of(1, 2, 3, 4, 5), slices.Insert(refusals3(2, 3, 4, 5), 6, event{RefusalPatience / 2, accepted(2), waits})},
		{"nor if one has another reason meanwhile", of(1, 2), slices.Insert(refusals3(2), 1, event{0, refused(2), silence})},
		{"nor too soon", of(1, 2), []event{{0, isForeign(2), foreign}, {0, isForeign(2), foreign}, {RefusalPatience - 1, isForeign(2), foreign}}},
		{"nor after two", of(1, 2), []event{{0, isForeign(2), foreign}, {RefusalPatience, isForeign(2), foreign}}},
		{"old refusals do not count", of(1, 2), []event{
			{0, isForeign(2), foreign},
			{1, isForeign(2), foreign},
			{memory + 2, isForeign(2), foreign},
			{memory + 2, isForeign(2), foreign},
			{memory + 2 + RefusalPatience, isForeign(2), giveUp},
		}},
		{"nor those of one that has gone", of(1, 2, 3), slices.Concat(
			[]event{{0, isForeign(2), foreign}, {0, isForeign(2), foreign}, {0, isForeign(2), foreign}},
			[]event{{5 * sec, isForeign(3), foreign}, {10 * sec, isForeign(3), foreign}, {memory + sec, isForeign(3), foreign}},
		)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			s := New(tt.cfg, start)
			for i, e := range tt.events {
				if got := e.do(s, start.Add(e.at)); got != e.want {
					t.Errorf("event %d at %v: %+v, want %+v", i, e.at, got, e.want)
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

// campaigns returns at which of so many ticks a member of 1, 2 and 3 campaigns.
func campaigns(s *State, ticks int, k Known) (at []int) {
	for i := range ticks {
		if s.Tick(time.Unix(0, 0), k) == campaign {
			at = append(at, i+1)
		}
	}
	return at
}

func TestTurns(t *testing.T) {
	three := Known{Voters: []uint64{1, 2, 3}}
	for _, tt := range []struct {
		name  string
		self  uint64
		fresh bool
		lost  uint64
		k     Known
		want  []int
	}{
		{"the lowest that outlives the leader is first", 2, false, 1, three, []int{11, 12, 17, 18}},
		{"then the next", 3, false, 1, three, []int{14, 15, 20, 21}},
		{"the leader that was lost has a place behind the lower ones", 1, false, 1, three, []int{11, 12, 17, 18}},
		{"and none if it is the highest", 3, false, 3, three, nil},
		{"no leader was known: all take turns", 3, false, 0, three, []int{17, 18}},
		{"a leader that is no voter takes no turn from them", 1, false, 9, three, []int{11, 12, 20, 21}},
		{"alone it does at once", 1, false, 0, Known{Voters: []uint64{1}}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
		{"a new cluster: the lowest begins", 1, true, 0, three, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}},
		{"a new cluster: the second follows", 2, true, 0, three, []int{4, 8, 12, 16, 20}},
		{"a new cluster that has had a leader", 1, true, 2, three, []int{11, 12, 17, 18}},
		{"not a learner", 4, false, 0, three, nil},
		{"not the leader", 1, false, 0, Known{Voters: three.Voters, Leads: true}, nil},
		{"not before it has applied the first entries", 1, true, 0, Known{Voters: three.Voters, Behind: true}, nil},
		{"not against its promise", 1, false, 0, Known{Voters: []uint64{1}, Bound: true}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Config{Self: tt.self, Fresh: tt.fresh, ElectionTicks: 10}, time.Unix(0, 0))
			s.LeaderIs(tt.lost)
			if got := campaigns(s, 21, tt.k); !slices.Equal(got, tt.want) {
				t.Errorf("it campaigns at ticks %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSignsOfLife(t *testing.T) {
	for _, tt := range []struct {
		typ  raftpb.MessageType
		term uint64
		want []int
	}{
		{raftpb.MsgHeartbeat, 5, nil},
		{raftpb.MsgApp, 6, nil},
		{raftpb.MsgSnap, 5, nil},
		{raftpb.MsgHeartbeat, 4, []int{1, 2}}, // of a leader that was deposed
		{raftpb.MsgVote, 5, []int{1, 2}},
		{raftpb.MsgHeartbeatResp, 5, []int{1, 2}},
	} {
		s := New(Config{Self: 1, ElectionTicks: 10}, time.Unix(0, 0))
		s.LeaderIs(2)
		three := Known{Voters: []uint64{1, 2, 3}}
		campaigns(s, 10, three)
		s.Heard(&raftpb.Message{Type: tt.typ.Enum(), Term: new(tt.term)}, 5)
		if heard := tt.want == nil; (s.Silence() == 0) != heard {
			t.Errorf("after %v of term %d: Silence() = %d, want 0 if that was a sign of life: %v", tt.typ, tt.term, s.Silence(), heard)
		}
		if got := campaigns(s, 2, three); !slices.Equal(got, tt.want) {
			t.Errorf("after %v of term %d: it campaigns at %v, want %v", tt.typ, tt.term, got, tt.want)
		}
	}
}

// A member that waits counts the ticks: once it is let in it is in step with the others.
func TestTheFirstTurnCountsFromTheStart(t *testing.T) {
	cfg := of(1, 2)
	cfg.Self, cfg.Fresh = 2, true
	s := New(cfg, time.Unix(0, 0))
	two := Known{Voters: []uint64{1, 2}}
	if got := campaigns(s, 3, two); got != nil {
		t.Fatalf("it campaigns at %v before it is let in", got)
	}
	if got := s.Accepted(1); got != open {
		t.Fatalf("Accepted() = %+v, want %+v", got, open)
	}
	s.Opened()
	if got := campaigns(s, 1, two); !slices.Equal(got, []int{1}) {
		t.Errorf("it campaigns at %v, want at once, as the turn of the first one is over", got)
	}
}
