package raftsim

import (
	"fmt"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

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
