package raftsim

import "time"

// Rules are what an embedder of raft does beyond what raft's documentation asks
// of it. The zero value is raft as it is.
type Rules struct {
	// HoldVotes (rule V9) moves a MsgVote from the messages of a Ready to the
	// responses of that Ready's MsgStorageAppend: it leaves when the candidate's
	// term and vote are durable.
	HoldVotes bool
	// DurableConf applies a configuration change only when a commit index that
	// covers it is durable. A flush of its own makes it so, in the order of the
	// log's writes.
	DurableConf bool
	// CompactByRaft compacts no entry that raft has not been told is applied.
	CompactByRaft bool
	// OwnTermReads lets no MsgReadIndex reach a leader that has committed nothing
	// in its term. Raft waits for that, but not if the leader is the only voter.
	OwnTermReads bool
	// QuietExit lets a leader append nothing after a change that removes its own vote.
	// Otherwise it may leave with a longer log than the remaining members, before they know
	// that the change is committed. Then they need its vote, it refuses, and no member can be
	// elected.
	QuietExit bool
	// HoldAppends sends a leader's entries only when they are durable, while a change of
	// configuration is under way. Otherwise a former voter, which never campaigns, may hold
	// entries that the leader has lost, and refuse the vote that the leader needs by the older
	// configuration.
	HoldAppends bool
	// RecoverCommit starts with the commit index that the log proves (see
	// leaderlease.RecoverCommit). Otherwise a follower may receive two changes in one append
	// and be killed before its disk knows that the first one is committed. It then starts in
	// the configuration before both, and is elected beside the leader.
	RecoverCommit bool
}

// AllRules returns the rules with which the simulator finds nothing.
func AllRules() Rules {
	return Rules{HoldVotes: true, DurableConf: true, CompactByRaft: true, OwnTermReads: true, QuietExit: true, HoldAppends: true, RecoverCommit: true}
}

// Config chooses a simulation. Only Seed is required.
type Config struct {
	// Seed decides everything that happens.
	Seed uint64
	// Rules are what the embedder does besides.
	Rules Rules
	// Tolerate is a kind of violation that does not end the run, to see what
	// comes of it.
	Tolerate string
	// Duration is how much time passes with faults before everything is healed;
	// default 10 s.
	Duration time.Duration
	// Trace is how many of the last events are kept as text; default none, since
	// a run repeats.
	Trace int
	// RaftLog adds raft's own log lines to the trace.
	RaftLog bool
}

func (c Config) withDefaults() Config {
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	return c
}
