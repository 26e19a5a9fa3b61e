package raftsim

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
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

// Result is the result of a simulation.
type Result struct {
	Seed      uint64
	Violation *Violation
	// Hash is over everything that happened, and equal for equal runs.
	Hash  uint64
	Count Count
	// Said counts messages by the data in them that was not durable yet.
	Said  Said
	trace []string
}

// Count counts the events of a simulation.
type Count struct {
	Virtual, Healing                            time.Duration
	Leaders, Crashes, Restarts, Snapshots       int
	Commits, Acked, Reads, Changes, SwitchedOff int
	Campaigns, Transfers, Replayed, Compacted   int
	HeldVotes, FlushedConfs, ShortCompactions   int
	RefusedReads, QuietProposals, HeldAppends   int
	UnsyncedKept, VolatileCrashes               int
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
		{"crashes after a message with data not yet durable", &c.VolatileCrashes},
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

// Uncovered returns the names of the events that never happened.
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

// Said counts, for each type of message, how many left, and how many of them contained a term,
// an entry or a commit index that was not durable at their sender.
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

// trace follows a run: a hash over everything that happened and, if asked for,
// the last events as text.
type trace struct {
	hash  uint64
	keep  int
	lines []string
	next  int
}

// mix adds values to the hash.
func (t *trace) mix(values ...uint64) {
	h := t.hash
	for _, v := range values {
		h ^= v
		h *= 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	t.hash = h
}

func (t *trace) add(line string) {
	if len(t.lines) < t.keep {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % t.keep
}

// last returns the lines that are kept, the oldest first.
func (t *trace) last() []string {
	return append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
}

// note writes a line about a node, or about the cluster if n is nil.
func (s *sim) note(n *node, format string, args ...any) {
	if s.trace.keep == 0 {
		return
	}
	s.trace.add(fmt.Sprintf("%12v  %-6s %s", s.now, n.name(), fmt.Sprintf(format, args...)))
}

// name is a member and its incarnation: 3.2 is the second process of member 3.
func (n *node) name() string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", n.id, n.run)
}

func (s *sim) noteMessage(n *node, what string, m *raftpb.Message) {
	s.trace.mix(uint64(s.now), n.id, uint64(len(what)), uint64(m.GetType()), m.GetFrom(), m.GetTo(), m.GetTerm(),
		m.GetIndex(), m.GetLogTerm(), m.GetCommit(), uint64(len(m.GetEntries())))
	if s.trace.keep > 0 {
		s.note(n, "%s %s", what, describe(m))
	}
}

// describe is a message as a person wants to read it.
func describe(m *raftpb.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d->%d", m.GetType(), m.GetFrom(), m.GetTo())
	for _, f := range []struct {
		name  string
		value uint64
	}{{"term", m.GetTerm()}, {"index", m.GetIndex()}, {"logterm", m.GetLogTerm()}, {"commit", m.GetCommit()}, {"hint", m.GetRejectHint()}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	if m.GetReject() {
		b.WriteString(" rejected")
	}
	for _, e := range m.GetEntries() {
		fmt.Fprintf(&b, " [%s]", describeEntry(e))
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		fmt.Fprintf(&b, " snapshot=%d/%d", m.GetSnapshot().GetMetadata().GetIndex(), m.GetSnapshot().GetMetadata().GetTerm())
	}
	return b.String()
}

// describeConf is a configuration as raft writes it; protobuf's own text is not
// the same in every build.
func describeConf(c *raftpb.ConfState) string {
	text := fmt.Sprintf("voters %v", c.GetVoters())
	if len(c.GetVotersOutgoing()) > 0 {
		text += fmt.Sprintf(" and %v", c.GetVotersOutgoing())
	}
	if len(c.GetLearners()) > 0 || len(c.GetLearnersNext()) > 0 {
		text += fmt.Sprintf(" learners %v next %v", c.GetLearners(), c.GetLearnersNext())
	}
	return text
}

func describeEntry(e *raftpb.Entry) string {
	kind := ""
	if e.GetType() != raftpb.EntryNormal {
		kind = " conf"
	}
	return fmt.Sprintf("%d/%d%s", e.GetIndex(), e.GetTerm(), kind)
}

// logger is raft's: it turns what raft calls a panic into one, and is otherwise
// silent unless the trace wants its lines.
type logger struct {
	s *sim
	n *node
}

func (l *logger) line(format string, args ...any) {
	if l.s.cfg.RaftLog {
		l.s.note(l.n, "  raft: "+format, args...)
	}
}

func (l *logger) Debug(v ...any)                   { l.line("%s", fmt.Sprint(v...)) }
func (l *logger) Debugf(format string, v ...any)   { l.line(format, v...) }
func (l *logger) Info(v ...any)                    { l.line("%s", fmt.Sprint(v...)) }
func (l *logger) Infof(format string, v ...any)    { l.line(format, v...) }
func (l *logger) Warning(v ...any)                 { l.line("%s", fmt.Sprint(v...)) }
func (l *logger) Warningf(format string, v ...any) { l.line(format, v...) }
func (l *logger) Error(v ...any)                   { l.line("%s", fmt.Sprint(v...)) }
func (l *logger) Errorf(format string, v ...any)   { l.line(format, v...) }
func (l *logger) Fatal(v ...any)                   { panic(fmt.Sprint(v...)) }
func (l *logger) Fatalf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
func (l *logger) Panic(v ...any)                   { panic(fmt.Sprint(v...)) }
func (l *logger) Panicf(format string, v ...any)   { panic(fmt.Sprintf(format, v...)) }
