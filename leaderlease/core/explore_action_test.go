package core

import (
	"fmt"
	"strings"

	"github.com/leaderlease/go/leaderlease/internal/explore"
)

// action is the kind of a step. Some do what a few others would do one after the
// other: with them, what is found is told in fewer steps, and no less is found.
type action uint8

const (
	doTick action = iota
	doCampaign
	doStand // campaign, and what is to be durable is
	doDurable
	doCrash
	doJump
	doNudge   // a jump within what was promised
	doDisrupt // a jump that the reading does not show
	doRecall  // and a memory from before what was saved and promised last
	doStepBack
	doCommit // changes of the configuration
	doApply
	doSwitch // commit and apply
	doSave   // begin to save a longest promise
	doWrite  // it is on the disk
	doSaved  // the node hears of that
	doKeep   // all three

	doRenew // probe, answer and count at once
	doProbe
	doBeat // a heartbeat without a probe, and its answer
	doAsk
	doVote // ask, and the vote is durable and arrives at once
	doSendForced
	doArrive
	doLearn
	doTransfer
	doResign
	doReportDeath // tell of the newest process that has died
	doReplicate
	doCatchUp // replicate and apply

	doDeliver
	doAnswer   // deliver a probe, and the answer stays under way
	doTakeOver // deliver a MsgTimeoutNow, and what is to be durable is
	doPass     // all clocks tick
	doPropose
	numActions

	firstPair   = doRenew
	firstLetter = doDeliver
)

var actionNames = [numActions]string{
	"tick", "campaign", "stand", "durable", "crash", "jump", "nudge", "disrupt", "recall", "step back", "commit changes", "apply", "switch",
	"save", "write", "saved", "keep",
	"renew", "probe", "heartbeat", "ask", "vote", "send forced vote", "vote arrives", "learn", "transfer", "resign", "death", "replicate", "catch up",
	"deliver", "answer", "take over", "pass", "propose",
}

// take does one step and reports whether it could be taken. A letter that it
// returns is to be put under way.
func (s *stage) take(st explore.Step) (post letter, ok bool) {
	i, j := int(st.A), int(st.B)
	switch action(st.Kind) {
	case doProbe:
		return s.probe(i, j)
	case doSendForced:
		return s.forcedVote(i, j)
	case doTransfer:
		return s.handOver(i, j)
	case doResign:
		return s.resign(i, j)
	case doReportDeath:
		return s.reportDeath(i, j)
	case doAnswer:
		return s.deliver(s.letters[i])
	case doDeliver:
		s.round(s.letters[i])
		return letter{}, true
	case doTakeOver:
		l := s.letters[i]
		s.takeOver(l)
		return letter{}, s.durable(int(l.to - 1))
	case doRenew:
		l, ok := s.probe(i, j)
		if ok {
			s.round(l)
		}
		return letter{}, ok
	default:
		return letter{}, s.act(action(st.Kind), i, j)
	}
}

// act does the steps that put no letter under way.
func (s *stage) act(k action, i, j int) bool {
	switch k {
	case doTick:
		return s.tick(i)
	case doPass:
		return s.pass()
	case doCampaign:
		return s.campaign(i, false)
	case doStand:
		return s.campaign(i, false) && s.durable(i)
	case doDurable:
		return s.durable(i)
	case doBeat:
		s.round(letter{kind: probeLetter, from: uint8(i + 1), to: uint8(j + 1), term: s.actors[i].term})
		return true
	case doAsk:
		return s.ask(i, j)
	case doVote:
		return s.ask(i, j) && s.durable(j) && s.arrive(i, j)
	case doArrive:
		return s.arrive(i, j)
	case doLearn:
		return s.learn(i, j)
	case doCrash:
		return s.restart(i)
	case doJump:
		return s.jump(i, Instant(s.b.d))
	case doNudge:
		return s.jump(i, 1)
	case doDisrupt:
		return s.jump(i, 0)
	case doRecall:
		return s.recall(i)
	case doKeep:
		return s.save(doSave, i) && s.save(doWrite, i) && s.save(doSaved, i)
	case doSave, doWrite, doSaved:
		return s.save(k, i)
	case doStepBack:
		return s.actors[i].now > firstInstant && s.jump(i, -1)
	default:
		return s.reconfigure(k, i, j)
	}
}

// reconfigure does the steps of a change of the configuration.
func (s *stage) reconfigure(k action, i, j int) bool {
	switch k {
	case doCommit:
		return s.commitChanges(i)
	case doApply:
		return s.apply(i)
	case doSwitch:
		return s.commitChanges(i) && s.apply(i)
	case doCatchUp:
		return s.catchUp(i, j)
	case doReplicate:
		return s.replicate(i, j)
	case doPropose:
		return s.propose(i, voters8(j))
	default:
		panic(fmt.Sprintf("step of unknown kind %d", k))
	}
}

// may says of most steps that cannot be taken that they cannot.
func (s *stage) may(st explore.Step) bool {
	a := &s.actors[st.A]
	switch action(st.Kind) {
	case doTick, doPass:
		return !s.b.still
	case doCampaign, doStand:
		return a.role != leads
	case doDurable:
		return a.dterm != a.term || a.dvote != a.vote
	case doCrash:
		return s.left.crashes > 0
	case doJump, doNudge, doDisrupt:
		return s.left.jumps > 0
	case doRecall:
		return s.left.jumps > 0 && s.b.turns[0] > 0 && a.role == follower
	case doStepBack:
		return s.left.backs > 0
	case doCommit, doApply, doSwitch:
		return a.log.n > a.log.applied
	case doSave, doWrite, doSaved, doKeep:
		return s.b.floor > 0
	case doRenew, doProbe, doBeat, doTransfer:
		return a.role == leads
	case doResign:
		return s.left.resigns > 0 && (a.role == leads || s.b.flaw == followerResigns && s.led[a.term] != 0)
	case doReportDeath:
		return s.left.deaths > 0 && (s.actors[st.B].run > 0 || s.b.flaw == livingReportedDead)
	case doReplicate, doCatchUp:
		return a.role == leads && s.b.budget.changes > 0
	case doAsk, doVote, doSendForced, doArrive:
		return a.role == candidate
	case doLearn:
		return a.term < s.actors[st.B].term
	default:
		return true
	}
}

// round lets a letter arrive, and the answer to it.
func (s *stage) round(l letter) {
	if answer, ok := s.deliver(l); ok {
		s.deliver(answer)
	}
}

// Describe implements explore.Model.
func (m *stages) Describe(state []byte, st explore.Step, next []byte) string {
	m.other.unpack(state)
	what := fmt.Sprintf("%s %d", actionNames[st.Kind], st.A+1)
	switch k := action(st.Kind); {
	case k == doPass:
		what = actionNames[k]
	case k == doPropose:
		what = fmt.Sprintf("%s %d voters %v", actionNames[k], st.A+1, ids(voters8(st.B)))
	case k >= firstLetter:
		what = fmt.Sprintf("%s %v", actionNames[k], m.other.letters[st.A])
	case k >= firstPair:
		what = fmt.Sprintf("%s %d %d", actionNames[k], st.A+1, st.B+1)
	}
	m.other.unpack(next)
	return fmt.Sprintf("%-44s %s", what, m.other.String())
}

// String says what is to be seen of each node.
func (s *stage) String() string {
	var all []string
	for i := range s.b.nodes {
		a := &s.actors[i]
		d := fmt.Sprintf("%d: %s %d", i+1, [...]string{"follows", "asks in", "leads"}[a.role], a.term)
		if a.dterm != a.term || a.dvote != a.vote {
			d += " not durable"
		}
		if v := a.lease.View(a.now); v.Check(a.now) == Valid {
			d += " LEASE"
		}
		if g := &a.guard; g.promise.until > a.now {
			d += fmt.Sprintf(" promised %d/%d for %d", g.promise.leader, g.promise.term, g.promise.until-a.now)
		}
		if a.guard.InRestartHold(a.now) {
			d += fmt.Sprintf(" held for %d", a.guard.holdUntil-a.now)
		}
		if s.b.floor > 0 {
			d += fmt.Sprintf(" saved %d", a.disk)
		}
		if s.b.budget.changes > 0 {
			d += fmt.Sprintf(" voters %v %v", ids(a.conf.in), ids(a.conf.out))
		}
		all = append(all, d)
	}
	return strings.Join(all, "; ")
}

// String describes a letter.
func (l letter) String() string {
	name := [...]string{"nothing", "probe", "grant", "MsgTimeoutNow", "forced MsgVote"}[l.kind]
	return fmt.Sprintf("%s %d→%d of term %d", name, l.from, l.to, l.term)
}
