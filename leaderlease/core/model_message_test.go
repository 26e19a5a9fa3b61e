package core

import (
	"fmt"
	"slices"
)

type modelMsg struct {
	kind     string // beat, answer, timeout-now
	from, to uint64
	term     uint64
	log      []modelEntry
	commit   int // of a beat
	match    int // of an answer
	probe    *Probe
	grant    *Grant
	release  *Release
}

func (m *model) send(msg modelMsg) {
	const room = 48
	if len(m.wire) == room {
		m.wire = slices.Delete(m.wire, 0, 1)
	}
	m.wire = append(m.wire, msg)
}

// beat sends a round of heartbeats with the leader's log.
func (m *model) beat(l *modelNode) (sent []modelMsg) {
	for _, n := range m.nodes {
		if n == l {
			continue
		}
		msg := modelMsg{kind: "beat", from: l.id, to: n.id, term: l.term, log: l.log, commit: l.commit}
		if p, ok := l.lease.Probe(m.now(l)); ok {
			msg.probe = &p
		}
		sent = append(sent, msg)
	}
	return sent
}

// deliver hands msg to its receiver and returns the answer, if any.
func (m *model) deliver(msg modelMsg) *modelMsg {
	n := m.node(msg.to)
	switch msg.kind {
	case "beat":
		return m.hear(n, msg)
	case "answer":
		m.count(n, msg)
	case "timeout-now":
		if msg.term < n.term || !m.admits(n, msg.release) {
			return nil
		}
		if msg.term > n.term {
			m.follow(n, msg.term)
		}
		rel, _ := n.guard.Released(n.term + 1)
		m.campaign(n, &rel)
	}
	return nil
}

// hear takes a heartbeat: promise first (V1), then raft.
func (m *model) hear(n *modelNode, msg modelMsg) *modelMsg {
	if msg.probe != nil {
		n.guard.Promise(msg.from, msg.term, *msg.probe, ProcessID{}, m.now(n))
	}
	answer := &modelMsg{kind: "answer", from: n.id, to: msg.from, term: msg.term}
	switch g, ok := n.guard.Grant(msg.from, msg.term, m.now(n)); {
	case ok:
		answer.grant = &g
	case m.flaw == echoed && msg.probe != nil:
		answer.grant = &Grant{Sent: msg.probe.Sent, Duration: msg.probe.Duration}
	}
	if msg.term < n.term {
		// Raft does not answer a deposed leader; whether the guard would have
		// promised is what termUntold and echoed are about.
		return answer
	}
	if msg.term > n.term || n.votes != nil {
		m.follow(n, msg.term)
	}
	if n.took < msg.term || len(msg.log) > len(n.log) {
		n.log, n.took = msg.log, msg.term
	}
	n.commit = max(n.commit, min(msg.commit, len(msg.log)))
	for n.applied < n.commit {
		m.apply(n)
	}
	answer.match = len(msg.log)
	return answer
}

// count takes an answer at the leader.
func (m *model) count(l *modelNode, msg modelMsg) {
	if msg.grant != nil {
		g := *msg.grant
		if m.flaw == measuredFromArrival {
			g.Sent = m.now(l)
		}
		if l.lease.Count(msg.from, msg.term, g, m.now(l)) {
			m.sight(renewal)
		}
	}
	if l.leads && msg.term == l.term {
		l.match[msg.from] = max(l.match[msg.from], msg.match)
		m.commits(l)
	}
	m.publish(l)
	for _, p := range l.lease.Peers(m.now(l)) {
		if p.ClockSuspect && m.flaw == sound {
			m.violation = fmt.Sprintf("%d doubts the clock of %d, which keeps within the bound", l.id, p.ID)
		}
	}
}

// transfer hands leadership to another node.
func (m *model) transfer(l, to *modelNode) {
	if l == to || !isVoter(l.cfg, to.id) {
		return
	}
	rel := Release{Term: l.term, At: m.now(l)}
	if m.flaw != releaseUntold {
		rel = l.lease.Release(m.now(l))
	}
	m.publish(l)
	m.tracef("%d hands over to %d, release %v", l.id, to.id, rel)
	m.send(modelMsg{kind: "timeout-now", from: l.id, to: to.id, term: l.term, release: &rel})
}
