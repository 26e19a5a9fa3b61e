package leasetest

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// mistakes by name.
var mistakes = map[string]Mistake{
	"none": NoMistake, "never": NeverReady, "copies": SendsCopy, "clones": SendsClones, "late": ReadyTooLate, "forgets": TellsNoConf,
	"twice": TellsConfTwice, "repeats": RepeatsConf, "old": TellsOldConf, "ahead": TellsConfAhead, "again": TellsConfAgain, "claims": ClaimsConf,
}

// mistake makes a node embed its Lease wrongly from now on.
func (s *script) mistake(a *args) {
	m, ok := mistakes[a.text(1)]
	if !ok {
		a.fail("mistake: no mistake %s", a.text(1))
	}
	a.node(s, 0).Options.Mistake = func(int) Mistake { return m }
}

// overtake makes a node filter messages on arrival, and delays matching messages between
// the filter and raft, so that other messages overtake them.
func (s *script) overtake(a *args) {
	n, m, by := a.node(s, 0), a.matcher(), a.duration("by", 0)
	n.Options.FilterOnArrival = true
	n.Options.StepDelay = func(msg *raftpb.Message) time.Duration {
		if m.match(msg) {
			return by
		}
		return 0
	}
}

// configure changes the durations for the next process of a node.
func (s *script) configure(a *args) {
	n, conf, before := a.node(s, 0), a.leaseConfig(), s.c.opts.Configure
	s.c.opts.Configure = func(id uint64, cfg *leaderlease.Config) {
		if id == n.ID {
			conf(id, cfg)
			return
		}
		before(id, cfg)
	}
}

// maxApplying is raft's default limit of bytes that are being applied: its MaxSizePerMsg.
// Beyond it, raft hands out no entries.
const maxApplying = 1 << 16

// fill proposes an entry of the size maxApplying: raft hands out no entries behind it until
// it is applied.
func (s *script) fill(a *args) {
	n := a.node(s, 0)
	n.exec(func() { _ = n.raw.Propose(make([]byte, maxApplying)) })
	s.c.Run(5 * time.Millisecond)
}

// burst gives a process ticks besides those of its clock.
func (s *script) burst(a *args) {
	n := a.node(s, 0)
	for range a.number("ticks") {
		n.Tick()
	}
}
