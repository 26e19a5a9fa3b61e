package sim

import (
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// trace follows a run: a hash over everything that happened, which is equal for
// equal runs, and the newest events for people to read.
type trace struct {
	hash   uint64
	events []traceEvent // a ring
	next   int
	// messages also keeps each message in the ring, not only in the hash.
	messages bool
}

// traceEvent is kept raw, because nearly all of them are never printed.
type traceEvent struct {
	at    time.Duration
	node  uint64
	what  string
	args  [4]uint64
	names string
}

const traceLen = 1 << 14

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

// note adds an event to the hash and to the time line. names says what args are.
func (t *trace) note(at time.Duration, node uint64, what, names string, args ...uint64) {
	t.mix(uint64(at), node, uint64(len(what)))
	t.mix(args...)
	t.keep(at, node, what, names, args...)
}

func (t *trace) keep(at time.Duration, node uint64, what, names string, args ...uint64) {
	e := traceEvent{at: at, node: node, what: what, names: names}
	copy(e.args[:], args)
	if len(t.events) < traceLen {
		t.events = append(t.events, e)
		return
	}
	t.events[t.next] = e
	t.next = (t.next + 1) % traceLen
}

func (t *trace) message(at time.Duration, what string, node uint64, m *raftpb.Message) {
	t.mix(uint64(at), uint64(m.GetType()), m.GetFrom(), m.GetTo(), m.GetTerm(), m.GetIndex(), m.GetCommit(), uint64(len(m.GetEntries())))
	if t.messages {
		t.keep(at, node, what+m.GetType().String(), "from term index commit", m.GetFrom(), m.GetTerm(), m.GetIndex(), m.GetCommit())
	}
}

// timeline returns the events since from, one per line.
func (t *trace) timeline(from time.Duration) string {
	var b strings.Builder
	for i := range t.events {
		e := t.events[(t.next+i)%len(t.events)]
		if e.at >= from {
			e.print(&b)
		}
	}
	return b.String()
}

func (e *traceEvent) print(b *strings.Builder) {
	name := "       "
	if e.node != 0 {
		name = fmt.Sprintf("node %-2d", e.node)
	}
	fmt.Fprintf(b, "%14v  %s  %s", e.at, name, e.what)
	for i, name := range strings.Fields(e.names) {
		fmt.Fprintf(b, " %s=%d", name, e.args[i])
	}
	b.WriteByte('\n')
}
