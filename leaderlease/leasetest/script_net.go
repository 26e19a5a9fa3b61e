package leasetest

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

func (s *script) holds(m *raftpb.Message) bool {
	for _, h := range s.held {
		if h.match(m) {
			return true
		}
	}
	return false
}

func (s *script) plan(m *raftpb.Message) []time.Duration {
	if d, ok := s.delays[m.GetType()]; ok {
		return d
	}
	return []time.Duration{time.Millisecond}
}

func (s *script) hold(a *args) { s.held = append(s.held, a.matcher()) }

// unhold holds back no further messages.
func (s *script) unhold(*args) { s.held = nil }

func (s *script) release(a *args) {
	s.printf("released %d", s.c.Net.Release(a.matcher().match))
	s.c.Run(2 * time.Millisecond)
}

func (s *script) drop(a *args) {
	before := len(s.c.Net.Held())
	s.c.Net.DropHeld(a.matcher().match)
	s.printf("dropped %d", before-len(s.c.Net.Held()))
}

func (s *script) messages(a *args) {
	m := a.matcher()
	for _, msg := range s.c.Net.Held() {
		if m.match(msg) {
			s.printf("%s", describeMessage(msg))
		}
	}
}

func describeMessage(m *raftpb.Message) string {
	d := fmt.Sprintf("%v %d→%d term=%d", m.GetType(), m.GetFrom(), m.GetTo(), m.GetTerm())
	if m.GetReject() {
		d += " reject"
	}
	if len(m.GetContext()) > 0 && m.GetType() == raftpb.MsgVote {
		d += " forced"
	}
	if f, ok := FieldOf(m); ok {
		d += " [" + f.String() + "]"
	}
	return d
}

// delay gives a type of message its own deliveries, one for each duration;
// without any, its messages travel as usual again.
func (s *script) delay(a *args) {
	var by []time.Duration
	for _, v := range a.values("by") {
		by = append(by, a.parseDuration(v))
	}
	for _, t := range a.matcher().types {
		delete(s.delays, t)
		if len(by) > 0 {
			s.delays[t] = by
		}
	}
}

func (s *script) cut(a *args) {
	for _, from := range a.ids("from") {
		for _, to := range a.ids("to") {
			s.c.Net.Cut(from, to)
		}
	}
}

func (s *script) join(a *args) { s.c.Net.Join(a.node(s, 0).ID, a.node(s, 1).ID) }

func (s *script) split(a *args) { s.c.Net.Split(a.ids("a"), a.ids("b")) }

func (s *script) isolate(a *args) {
	id := a.node(s, 0).ID
	for _, n := range s.c.Nodes() {
		if n.ID != id {
			s.c.Net.Split([]uint64{id}, []uint64{n.ID})
		}
	}
}

func (s *script) heal(*args) { s.c.Net.Heal() }
