package detector

import "time"

// Config describes this member and the timing of its group.
type Config struct {
	Self uint64
	// ElectionTicks is raft's ElectionTick.
	ElectionTicks int
	// Heartbeat is the time between two heartbeats of a leader.
	Heartbeat time.Duration
	// ElectionTimeout is the group's. A suspicion lasts that long. Then Tick decides.
	ElectionTimeout time.Duration
	// Slot is the length of the first campaign slots after a suspicion. Default: half a Heartbeat,
	// and at least 25 ms. If it is shorter than the latency between members, they split the vote,
	// and a later and longer slot decides. If it is long, fail-over takes longer when the first
	// member in order is down too.
	Slot time.Duration
	// Fresh says that no leader was elected since the log was bootstrapped. No member has made a
	// promise then, so the first election need not wait for an election timeout.
	Fresh bool
	// Observe is how long a leader is observed before an unusually long silence is a suspicion. Zero
	// turns this off. If Observe is short, the usual pauses of a leader are not known yet, and one may
	// cost an election. An election timeout below 300 ms leaves nothing to gain, and turns it off.
	// A member that does not call Tick at each tick seems to be paused all the time, and records
	// nothing.
	Observe time.Duration
}

// New returns the detector of a member that starts now.
func New(cfg Config, now time.Time) *Detector {
	if cfg.Slot == 0 {
		cfg.Slot = max(cfg.Heartbeat/2, 25*time.Millisecond)
	}
	slotTicks := minSlotTicks
	if tick := cfg.tick(); tick > 0 {
		slotTicks = max(slotTicks, int((timeoutSlot+tick-1)/tick))
	}
	d := &Detector{cfg: cfg, slotTicks: slotTicks, fresh: cfg.Fresh, heard: now, adaptive: newAdaptive(&cfg, now)}
	if !cfg.Fresh {
		// The former leader may be dead too. If it lives, it is heard before the restart hold ends,
		// and until then State.Bound keeps this member from campaigning.
		d.suspicion = suspicion{cause: restart, at: now}
	}
	return d
}

func (c *Config) tick() time.Duration {
	return c.ElectionTimeout / time.Duration(max(c.ElectionTicks, 1))
}

// State is the state of the member at the moment of a Tick or a Poll.
type State struct {
	// Voters are the applied voters in order of their IDs, in a joint configuration those of both
	// halves.
	Voters []uint64
	// Leads: the member leads. Candidate: it campaigns, and a quorum has granted its pre-votes.
	// Away: it does not take part, or has not applied the bootstrap entries.
	Leads, Candidate, Away bool
	// Bound: a promise or the restart hold forbids to campaign (Lease.CanCampaign).
	Bound bool
}

// Decision is what the raft loop must do now, in the order of the fields.
type Decision struct {
	// Forget: call ForgetLeader of raft, so that it votes at once.
	Forget bool
	// Campaign: call Campaign of raft.
	Campaign bool
	// Force: campaign by the message that Lease.ProcessDied has returned. Pass it through Incoming
	// and to Step. If raft is no follower, or has left the message's term, call Campaign instead.
	Force bool
}
