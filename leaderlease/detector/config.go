package detector

import (
	"time"
)

// Config is what a member knows of itself and of its group's timing.
type Config struct {
	Self uint64
	// ElectionTicks is raft's ElectionTick: after how many ticks without a leader the
	// others would vote anyway.
	ElectionTicks int
	// Heartbeat is the time between two heartbeats of a leader.
	Heartbeat time.Duration
	// ElectionTimeout is for how long a hint is believed. After it silence decides, as
	// without one.
	ElectionTimeout time.Duration
	// Turn is the time between the first turns of two members that suspect their leader.
	// Default: half a Heartbeat, and 25 ms at least. Shorter than a message's way from one
	// to the other: they split the vote, and a later turn, a longer one, decides. Longer:
	// fail-over takes longer if the first is down.
	Turn time.Duration
	// Fresh: there has been no leader since the log was bootstrapped, so nobody has
	// promised anything and nobody needs to wait.
	Fresh bool
	// Learn is for how long a leader is watched before a silence that is much longer than any
	// it has shown is taken for a hint. Zero: silence is no hint, and decides after an election
	// timeout alone. Short: what usually stalls a leader is not known yet, and may cost an
	// election. An election timeout below 300 ms leaves nothing to win, and is as zero. Whoever
	// does not call Tick at each tick seems to be paused all the time, and learns nothing.
	Learn time.Duration
}

// New returns the detector of a member that starts now.
func New(cfg Config, now time.Time) *Detector {
	if cfg.Turn == 0 {
		cfg.Turn = max(cfg.Heartbeat/2, 25*time.Millisecond)
	}
	turn := leastTurn
	if tick := cfg.ElectionTimeout / time.Duration(max(cfg.ElectionTicks, 1)); tick > 0 {
		turn = max(turn, int((longTurn+tick-1)/tick))
	}
	d := &Detector{cfg: cfg, turn: turn, fresh: cfg.Fresh, heard: now, learnt: newLearnt(&cfg, now)}
	if !cfg.Fresh {
		// The leader that this member followed before may be dead, too. If it lives, it is heard
		// before the restart hold ends; until then Known.Bound keeps this member from campaigning.
		d.hint = suspicion{way: restart, at: now}
	}
	return d
}

// Known is what is known at the moment of a Tick or a Poll.
type Known struct {
	// Voters are the voters in order of their IDs, as applied: of both halves, if the
	// configuration is joint.
	Voters []uint64
	// Leads: the member leads. Candidate: it stands for election, with others' pre-votes
	// behind it. Away: it does not take part, or has not applied what bootstrapping made.
	Leads, Candidate, Away bool
	// Bound: it has promised not to campaign, or may have before it restarted;
	// Lease.CanCampaign tells.
	Bound bool
}

// Decision is what to do now, in the order of the fields.
type Decision struct {
	// Forget: have raft forget its leader (ForgetLeader), so that it votes at once.
	Forget bool
	// Campaign: have raft campaign.
	Campaign bool
	// Force: campaign by the message that Lease.Obituary has returned, through Incoming and raft's
	// Step; where raft is no follower, or has left the message's term, as ever.
	Force bool
}
