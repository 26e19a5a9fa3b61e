package raftsim

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Violation is what a simulation found. It ends the run.
type Violation struct {
	// Kind is one of the judgements of the package comment.
	Kind string
	At   time.Duration
	Text string
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s at %v: %s", v.Kind, v.At, v.Text)
}

// Result is what became of a simulation.
type Result struct {
	Seed      uint64
	Violation *Violation
	// Hash is over everything that happened, and equal for equal runs.
	Hash  uint64
	Count Count
	// Said counts messages by what their senders could still forget.
	Said  Said
	trace []string
}

// Count is how much happened.
type Count struct {
	Virtual, Healing                            time.Duration
	Leaders, Crashes, Restarts, Snapshots       int
	Commits, Acked, Reads, Changes, SwitchedOff int
	Campaigns, Transfers, Replayed, Compacted   int
	HeldVotes, FlushedConfs, ShortCompactions   int
	RefusedReads, QuietProposals, HeldAppends   int
	UnsyncedKept, TemptedByMessage              int
	Torn, Recovered, TornChanges                int
}

// Add sums up several runs.
func (c *Count) Add(d *Count) {
	c.Virtual += d.Virtual
	c.Healing = max(c.Healing, d.Healing)
	for i, from := range d.fields() {
		*c.fields()[i].n += *from.n
	}
}

type counted struct {
	name string
	n    *int
}

func (c *Count) fields() []counted {
	return []counted{
		{"terms with a leader", &c.Leaders},
		{"crashes", &c.Crashes},
		{"restarts", &c.Restarts},
		{"snapshots installed", &c.Snapshots},
		{"entries committed", &c.Commits},
		{"proposals acknowledged", &c.Acked},
		{"reads answered", &c.Reads},
		{"configuration changes", &c.Changes},
		{"members switched off", &c.SwitchedOff},
		{"campaigns", &c.Campaigns},
		{"transfers", &c.Transfers},
		{"old messages delivered again", &c.Replayed},
		{"entries compacted", &c.Compacted},
		{"MsgVotes held (HoldVotes)", &c.HeldVotes},
		{"commit indexes flushed (DurableConf)", &c.FlushedConfs},
		{"compactions cut short (CompactByRaft)", &c.ShortCompactions},
		{"MsgReadIndex refused (OwnTermReads)", &c.RefusedReads},
		{"proposals dropped (QuietExit)", &c.QuietProposals},
		{"MsgApps held (HoldAppends)", &c.HeldAppends},
		{"unfinished writes that survived", &c.UnsyncedKept},
		{"crashes after a word not yet durable", &c.TemptedByMessage},
		{"writes torn between entries and hard state", &c.Torn},
		{"commit indexes that a log proved (RecoverCommit)", &c.Recovered},
		{"members killed while they learn of several changes", &c.TornChanges},
	}
}

func (c *Count) String() string {
	var b strings.Builder
	for _, f := range c.fields() {
		fmt.Fprintf(&b, "%12d  %s\n", *f.n, f.name)
	}
	fmt.Fprintf(&b, "%12v  longest recovery\n", c.Healing.Round(time.Millisecond))
	return b.String()
}

// Uncovered names what never happened: what a run cannot have judged.
func (c *Count) Uncovered() []string {
	var names []string
	for _, f := range c.fields() {
		if *f.n == 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// Report is the violation, how to repeat it, and the last events before it.
func (r *Result) Report() string {
	if r.Violation == nil {
		return fmt.Sprintf("seed %d: no violation", r.Seed)
	}
	return fmt.Sprintf("VIOLATION seed %d: %s\n%s", r.Seed, r.Violation, strings.Join(r.trace, "\n"))
}

// Said counts, for each type of message, how many left, and how many of them
// spoke of something that their sender could still forget.
type Said [numTypes]struct{ Sent, Term, Entry, Commit int }

const numTypes = int(raftpb.MsgForgetLeader) + 1

// Add sums up several runs.
func (s *Said) Add(d *Said) {
	for i := range s {
		s[i].Sent += d[i].Sent
		s[i].Term += d[i].Term
		s[i].Entry += d[i].Entry
		s[i].Commit += d[i].Commit
	}
}

func (s *Said) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %10s %10s %10s %10s\n", "not durable when", "sent", "its term", "an entry", "commit")
	for i, n := range s {
		if n.Sent > 0 {
			fmt.Fprintf(&b, "%-18s %10d %10d %10d %10d\n", raftpb.MessageType(i), n.Sent, n.Term, n.Entry, n.Commit)
		}
	}
	return b.String()
}
