package core

import (
	"fmt"
	"slices"
	"time"
)

// event is one kind of step of a model.
type event int

const (
	advance event = iota // time passes
	edge                 // time passes until just before or after something ends
	round                // a leader's heartbeats and their answers, at once
	beat                 // a leader's heartbeats leave
	deliver              // one message arrives, maybe not for the last time
	campaign
	ask   // a candidate gets one vote
	elect // a candidate asks everyone
	apply

	// The rest are faults, each of which some runs do without.
	lose
	transfer
	reconfigure
	restart
	rate
	stepBack
	invalidate
	stepDown
	suspend
	numEvents = iota

	firstFault = lose
)

var eventWeights = [numEvents]int{
	advance: 5, edge: 5, round: 6, beat: 4, deliver: 10, campaign: 2, ask: 4, elect: 3, apply: 2,
	lose: 1, transfer: 2, reconfigure: 2, restart: 2, rate: 1, stepBack: 1, invalidate: 1, stepDown: 1, suspend: 1,
}

var eventNames = [numEvents]string{
	"advance", "edge", "round", "beat", "deliver", "campaign", "ask", "elect", "apply",
	"lose", "transfer", "reconfigure", "restart", "change of rate", "step back", "invalidate", "step-down", "suspension",
}

// String returns the name that traces use.
func (e event) String() string { return eventNames[e] }

// run plays the script to its end, or to the first violation.
func (m *model) run() {
	for len(m.script) > 0 && m.violation == "" {
		m.step(m.choose())
		m.inspect()
	}
}

func (m *model) choose() event {
	total := 0
	for _, w := range m.weights {
		total += w
	}
	at := m.pick(total)
	for e, w := range m.weights {
		if at -= w; at < 0 {
			return event(e)
		}
	}
	panic(fmt.Sprintf("choice beyond the weights %v", m.weights))
}

func (m *model) step(e event) {
	n := m.nodes[m.pick(len(m.nodes))]
	switch e {
	case advance:
		m.truth += int64(m.params.Duration) * int64(m.pick(256)) / 1024
	case edge:
		m.toEdge(n)
	case campaign:
		m.campaign(n, nil)
	case ask:
		m.ask(m.candidate(), n)
	case elect:
		if n.votes == nil {
			m.campaign(n, nil)
		}
		for _, v := range m.nodes {
			m.ask(n, v)
		}
	case apply:
		m.apply(n)
	case deliver, lose:
		m.arrive(e == deliver)
	case restart, rate, stepBack, suspend:
		m.disturb(e, n)
	default:
		if l := m.leader(); l != nil {
			m.lead(e, l, n)
		}
	}
}

// lead is a step of leader l; n is any node.
func (m *model) lead(e event, l, n *modelNode) {
	switch e {
	case round:
		for _, msg := range m.beat(l) {
			if answer := m.deliver(msg); answer != nil {
				m.deliver(*answer)
			}
		}
	case beat:
		for _, msg := range m.beat(l) {
			m.send(msg)
		}
	case transfer:
		m.transfer(l, n)
	case reconfigure:
		m.reconfigure(l)
	case invalidate:
		l.lease.Invalidate(m.now(l))
		m.publish(l)
	case stepDown:
		m.follow(l, l.term)
	}
}

// disturb restarts a node, or does something to its clock.
func (m *model) disturb(e event, n *modelNode) {
	now := m.now(n)
	switch e {
	case restart:
		n.pacer = modelClock{base: m.drawOrigin(), since: m.truth, ppm: n.pacer.ppm}
		m.start(n, m.flaw.hold(m.params.Duration))
	case rate:
		n.pacer = modelClock{base: now, since: m.truth, ppm: m.drawRate()}
	case stepBack:
		back := m.params.Duration * time.Duration(m.pick(256)) / 128
		n.pacer = modelClock{base: max(now.Add(-back), 1), since: m.truth, ppm: n.pacer.ppm}
		if m.flaw != clockUntold {
			n.guard.StartOver(m.now(n))
			n.lease.StartOver(m.now(n))
		}
		m.publish(n)
	case suspend:
		m.suspend(n, now)
	}
	m.tracef("%v of %d, which shows %v after %v", e, n.id, time.Duration(m.now(n)), time.Duration(now))
}

// suspend stops a node's machine, so that its clock misses the time, or makes its clock
// jump ahead. The node is notified.
func (m *model) suspend(n *modelNode, now Instant) {
	drawn := m.pick(256)
	d, untold := m.params.Duration*time.Duration(drawn)/128, m.flaw == suspendUntold
	if drawn%3 == 0 {
		now, untold = now.Add(d), m.flaw == jumpUntold
	} else {
		m.truth += int64(d)
	}
	n.pacer = modelClock{base: now + 1, since: m.truth, ppm: n.pacer.ppm}
	if !untold {
		n.guard.StartOver(now + 1)
		n.lease.StartOver(now + 1)
	}
	m.publish(n)
}

// arrive takes one message off the wire, or a copy of it.
func (m *model) arrive(delivered bool) {
	if len(m.wire) == 0 {
		return
	}
	i := m.pick(len(m.wire))
	msg := m.wire[i]
	if again := delivered && m.pick(6) == 0; !again {
		m.wire = slices.Delete(m.wire, i, i+1)
	}
	if !delivered {
		return
	}
	if answer := m.deliver(msg); answer != nil {
		m.send(*answer)
	}
}

// toEdge lets time pass until just before n's view stops to serve, or until
// what binds n has just ended.
func (m *model) toEdge(n *modelNode) {
	target := n.view.Usable - 1
	if m.pick(2) == 0 || !n.leads {
		info := n.guard.Info(m.now(n))
		target = m.now(n).Add(max(info.Remaining, info.Hold)) + 4
	}
	if d := n.pacer.until(target, m.truth); target < Forever/2 && d > 0 {
		m.truth += d
	}
}

func (m *model) leader() *modelNode {
	var leaders []*modelNode
	for _, n := range m.nodes {
		if n.leads {
			leaders = append(leaders, n)
		}
	}
	if len(leaders) == 0 {
		return nil
	}
	return leaders[m.pick(len(leaders))]
}

func (m *model) candidate() *modelNode {
	candidates := slices.DeleteFunc(slices.Clone(m.nodes), func(n *modelNode) bool { return n.votes == nil })
	if len(candidates) == 0 {
		return m.nodes[0]
	}
	return candidates[m.pick(len(candidates))]
}

// inspect looks for a view that passes its check while another node could win
// an election at this instant, or has won one in a later term.
func (m *model) inspect() {
	for _, l := range m.nodes {
		now := m.now(l)
		if l.view.Check(now) == Margin {
			m.sight(readInMargin)
		}
		if l.view.Check(now) != Valid {
			continue
		}
		m.sight(leaseHeld)
		for _, c := range m.nodes {
			if c == l {
				continue
			}
			if c.leads && c.term > l.view.Term {
				m.violatedf("%d leads term %d while %d serves in term %d", c.id, c.term, l.id, l.view.Term)
			}
			if how := m.couldWin(c, l); how != "" {
				m.violatedf("%d could win %s while %d serves in term %d at %v of %v",
					c.id, how, l.id, l.view.Term, time.Duration(now), time.Duration(l.view.Usable))
			}
		}
	}
	for _, n := range m.nodes {
		if info := n.guard.Info(m.now(n)); info.Hold > info.Remaining {
			m.sight(heldBack)
		}
		if n.leads && slices.ContainsFunc(m.nodes, func(o *modelNode) bool { return o.term > n.term }) {
			m.sight(overtaken)
		}
	}
}

func (m *model) violatedf(format string, args ...any) {
	if m.violation == "" {
		m.violation = fmt.Sprintf(format, args...)
		m.tracef("violation: %s", m.violation)
	}
}

// couldWin says how c would win if everyone answered at once; l would first
// have to give its lease up, so it does not count.
func (m *model) couldWin(c, l *modelNode) string {
	if !isVoter(c.cfg, c.id) || c.leads {
		return ""
	}
	anyone := func(*modelNode) bool { return true }
	if !m.bound(c) && m.wins(c, l, nil, nil, anyone) {
		return "by campaigning"
	}
	if m.couldWinByTransfer(c, l) {
		return "by the transfer under way"
	}
	unspent := func(v *modelNode) bool { return v.term < c.term || (v.term == c.term && v.vote == 0) }
	if c.votes != nil && c.term > l.view.Term && m.wins(c, l, c.votes, c.forced, unspent) {
		return "with the votes it has"
	}
	return ""
}

func (m *model) couldWinByTransfer(c, l *modelNode) bool {
	anyone := func(*modelNode) bool { return true }
	for _, msg := range m.wire {
		if msg.kind != "timeout-now" || msg.to != c.id || msg.term < c.term || !m.wouldAdmit(c, msg.release) {
			continue
		}
		if m.wins(c, l, nil, msg.release, anyone) {
			return true
		}
	}
	return false
}

// wins reports whether the votes c has and those it could get are a quorum.
func (m *model) wins(c, l *modelNode, has map[uint64]bool, rel *Release, may func(*modelNode) bool) bool {
	in := map[uint64]bool{c.id: true}
	for _, v := range m.nodes {
		in[v.id] = in[v.id] || has[v.id] || (v != l && may(v) && !newer(v, c) && m.wouldAdmit(v, rel))
	}
	return bruteQuorum(c.cfg, in)
}

// wouldAdmit asks a copy of v's guard, so that nothing is released by asking.
func (m *model) wouldAdmit(v *modelNode, rel *Release) bool {
	g := *v.guard
	return g.Admit(rel, m.now(v)) || m.flaw == guardNotAsked
}
