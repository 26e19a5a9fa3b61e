package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3/quorum"
)

// model is a cluster reduced to what a lease depends on: terms, votes, a log of
// configurations, clocks that drift, and a network that delays, repeats, loses
// and reorders. It breaks Raft's rules nowhere and assumes nothing of timing:
// elections begin at any time. One script of bytes makes all its choices, so a
// run is repeated by its script.
type model struct {
	script []byte
	flaw   flaw
	params Params
	rho    int64 // bound of each clock's rate error, in parts per million
	truth  int64 // true time in nanoseconds
	nodes  []*modelNode
	wire   []modelMsg
	// processes counts the clocks that have been started.
	processes Incarnation
	// weights say how often each kind of event is chosen.
	weights [numEvents]int

	seen  [numSights]int
	trace []string
	// violation is the first one found.
	violation string
}

// modelNode is one node: what it has stored, and what its process knows.
type modelNode struct {
	id uint64

	// Storage.
	term, vote uint64
	log        []modelEntry
	commit     int
	applied    int

	// Process.
	leads  bool
	first  int // the term's own first entry
	match  map[uint64]int
	took   uint64          // term of the leader whose log it has
	votes  map[uint64]bool // as a candidate in term, else nil
	forced *Release        // as a candidate by a transfer
	guard  *Guard
	lease  *Lease
	view   View // as published
	cfg    quorum.JointConfig
	pacer  modelClock
}

// modelEntry is a configuration, or nothing.
type modelEntry struct {
	term uint64
	cfg  *quorum.JointConfig
}

// modelClock shows base at true time since and gains ppm from there.
type modelClock struct {
	base  Instant
	since int64
	ppm   int64
}

func (c *modelClock) at(truth int64) Instant {
	d := truth - c.since
	return c.base + Instant(d+d/1e6*c.ppm+d%1e6*c.ppm/1e6)
}

// until returns how long it takes until the clock shows less than i for the
// last time, or later by less than a rounding; negative if that has passed.
func (c *modelClock) until(i Instant, truth int64) int64 {
	left := int64(i - c.at(truth))
	return left/(1e6+c.ppm)*1e6 + left%(1e6+c.ppm)*1e6/(1e6+c.ppm)
}

// pick makes the next choice, in [0, n). An exhausted script chooses 0.
func (m *model) pick(n int) int {
	if n <= 1 || len(m.script) == 0 {
		return 0
	}
	b := m.script[0]
	m.script = m.script[1:]
	return int(b) % n
}

func (m *model) now(n *modelNode) Instant { return n.pacer.at(m.truth) }

func (m *model) node(id uint64) *modelNode { return m.nodes[id-1] }

func (m *model) sight(s sight) { m.seen[s]++ }

func (m *model) tracef(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%v ", time.Duration(m.truth))+fmt.Sprintf(format, args...))
}

// newModel draws a cluster: three to seven nodes of which the first one to five
// vote, a drift bound, and the faults that this run may have.
func newModel(script []byte, f flaw) *model {
	m := &model{script: script, flaw: f}
	size := 3 + m.pick(5)
	m.rho = []int64{83_333, 1_000, 20_000, 200_000}[m.pick(4)]
	d := int64(time.Second)
	m.params = Params{
		Duration:        time.Duration(d),
		MaxClockSkew:    time.Duration(d*2*m.rho/(1_000_000+m.rho)) + time.Microsecond,
		TransferTimeout: time.Duration(d) * 5 / 4,
	}
	m.params.MaxClockSkew = f.margin(m.params.MaxClockSkew)
	off := m.pick(256) | m.pick(256)<<8
	for e := range event(numEvents) {
		m.weights[e] = eventWeights[e]
		if e >= firstFault && off&(1<<(e-firstFault)) != 0 {
			m.weights[e] = 0
		}
	}
	var ids []uint64
	for id := range uint64(1 + m.pick(min(size, 5))) {
		ids = append(ids, id+1)
	}
	initial := voters(ids...)
	for id := range uint64(size) {
		n := &modelNode{id: id + 1, log: []modelEntry{{term: 1, cfg: &initial}}, commit: 1, term: 1}
		n.applied, n.cfg = 1, initial
		n.pacer = modelClock{base: m.drawOrigin(), ppm: m.drawRate()}
		m.nodes = append(m.nodes, n)
		m.start(n, 0)
	}
	return m
}

// drawRate prefers the ends: that is where a margin is needed.
func (m *model) drawRate() int64 {
	switch m.pick(3) {
	case 0:
		return -m.rho
	case 1:
		return m.rho
	default:
		return m.rho * int64(m.pick(256)-128) / 128
	}
}

// drawOrigin is what a new process's clock shows. Like the product's, clocks
// begin anew, so what two processes read overlaps and means nothing together.
func (m *model) drawOrigin() Instant { return Instant(1+m.pick(4)) * sec }

// start begins a process: what the last one knew and did not store is gone.
func (m *model) start(n *modelNode, hold time.Duration) {
	p := m.params
	p.ID = n.id
	n.leads, n.match, n.votes, n.forced, n.took = false, nil, nil, nil, 0
	m.processes += 1 << 20 // Next counts from it
	n.guard = NewGuard(m.now(n), m.processes, m.params.Duration, hold)
	n.lease = NewLease(p)
	n.lease.SetVoters(n.cfg)
	m.tell(n)
	m.publish(n)
}

// tell brings a node's guard to its term.
func (m *model) tell(n *modelNode) {
	if m.flaw != termUntold {
		n.guard.SetTerm(n.term)
	}
}

func (m *model) publish(n *modelNode) { n.view = n.lease.View(m.now(n)) }

// follow ends what n was in its term, and enters a later one.
func (m *model) follow(n *modelNode, term uint64) {
	if term > n.term {
		n.term, n.vote = term, 0
	}
	n.leads, n.votes, n.forced = false, nil, nil
	m.tell(n)
	if m.flaw != stepDownUntold {
		n.lease.StepDown()
	}
	m.publish(n)
}

// campaign makes n a candidate of the next term, if it is free.
func (m *model) campaign(n *modelNode, forced *Release) {
	if n.leads || !isVoter(n.cfg, n.id) || m.bound(n) {
		return
	}
	m.follow(n, n.term+1)
	n.vote, n.votes = n.id, map[uint64]bool{n.id: true}
	n.forced = forced
	m.tracef("%d campaigns in term %d, release %v", n.id, n.term, forced)
	m.win(n)
}

// ask makes candidate c ask v for its vote.
func (m *model) ask(c, v *modelNode) {
	if c.votes == nil || c == v || v.term > c.term || !isVoter(c.cfg, v.id) {
		return
	}
	if !m.admits(v, c.forced) {
		m.sight(voteWithheld)
		return
	}
	if v.term < c.term {
		m.follow(v, c.term)
	}
	if (v.vote != 0 && v.vote != c.id) || v.leads || newer(v, c) {
		return
	}
	v.vote = c.id
	c.votes[v.id] = true
	m.tracef("%d votes for %d in term %d", v.id, c.id, c.term)
	m.win(c)
}

func (m *model) win(c *modelNode) {
	if c.votes == nil || !bruteQuorum(c.cfg, c.votes) {
		return
	}
	m.tracef("%d leads term %d", c.id, c.term)
	m.sight(election)
	if c.forced != nil {
		m.sight(transferWon)
	}
	c.leads, c.votes, c.forced, c.took = true, nil, nil, c.term
	c.log = append(slices.Clone(c.log), modelEntry{term: c.term})
	c.first = len(c.log)
	c.match = map[uint64]int{}
	c.lease.Lead(c.term, m.now(c))
	m.commits(c)
}

// admits asks v's guard about a message, with the release it carries.
func (m *model) admits(v *modelNode, rel *Release) bool {
	return v.guard.Admit(rel, m.now(v)) || m.flaw == guardNotAsked
}

func (m *model) bound(n *modelNode) bool { return n.guard.Bound(m.now(n)) && m.flaw != guardNotAsked }

// newer reports whether v's log is more up to date than c's.
func newer(v, c *modelNode) bool {
	vt, ct := v.log[len(v.log)-1].term, c.log[len(c.log)-1].term
	return vt > ct || (vt == ct && len(v.log) > len(c.log))
}

// commits moves the leader's commit index to what a quorum has.
func (m *model) commits(l *modelNode) {
	for i := len(l.log); i > l.commit && l.log[i-1].term == l.term; i-- {
		has := map[uint64]bool{l.id: true}
		for id, match := range l.match {
			has[id] = match >= i
		}
		if bruteQuorum(l.cfg, has) {
			l.commit = i
			break
		}
	}
	if l.commit >= l.first {
		l.lease.OwnTermCommitted()
	}
	m.publish(l)
}

// apply applies one committed entry. A leader leaves a joint configuration by
// itself, and never proposes a change before it has applied the last (L5).
func (m *model) apply(n *modelNode) {
	if n.applied >= n.commit {
		return
	}
	n.applied++
	cfg := n.log[n.applied-1].cfg
	if cfg == nil {
		return
	}
	n.cfg = *cfg
	m.tracef("%d applies %v", n.id, n.cfg)
	switch {
	case m.flaw == votersUntold && n.leads:
	case m.flaw == incomingHalfOnly:
		n.lease.SetVoters(quorum.JointConfig{n.cfg[0]})
	default:
		n.lease.SetVoters(n.cfg)
	}
	if n.leads {
		m.sight(reconfigured)
		if len(n.cfg[1]) > 0 {
			m.propose(n, quorum.JointConfig{n.cfg[0]})
		}
	}
	m.publish(n)
}

// propose appends a configuration unless an earlier one is not applied yet.
func (m *model) propose(l *modelNode, cfg quorum.JointConfig) {
	for _, e := range l.log[l.applied:] {
		if e.cfg != nil {
			return
		}
	}
	l.log = append(slices.Clone(l.log), modelEntry{term: l.term, cfg: &cfg})
	m.tracef("%d proposes %v", l.id, cfg)
	m.commits(l)
}

// reconfigure adds or removes one voter, or replaces several at once.
func (m *model) reconfigure(l *modelNode) {
	if len(l.cfg[1]) > 0 {
		m.propose(l, quorum.JointConfig{l.cfg[0]})
		return
	}
	next := maps.Clone(l.cfg[0])
	simple := m.pick(2) == 0
	for range 1 + m.pick(4) {
		id := uint64(1 + m.pick(len(m.nodes)))
		if _, in := next[id]; in && len(next) > 1 {
			delete(next, id)
		} else {
			next[id] = struct{}{}
		}
		if simple {
			m.propose(l, quorum.JointConfig{next})
			return
		}
	}
	m.propose(l, quorum.JointConfig{next, l.cfg[0]})
}

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
