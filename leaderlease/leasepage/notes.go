package leasepage

import (
	"fmt"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// maxNotes bounds the notes of one process: more than come in keep, one each feedEvery.
const maxNotes = 1 << 10

// told is what is known of one process: its trace, and its notes in order.
type told struct {
	leasetrace.Process
	notes []note
	// reading is the newest reading of the process's clock, and from where a live picture
	// begins by that clock; both are 0 for a recorded trace.
	reading, from leaderlease.Instant
}

// note is what a member says besides what its lease has decided: what it has counted since
// the note before, at an instant of its own clock.
type note struct {
	At leaderlease.Instant `json:"at"`
	// Lost is how many events are missing right before those of At.
	Lost uint64 `json:"lost,omitempty"`
	// Reads are those that were served, by path.
	Reads reads `json:"reads,omitzero"`
	// Hints counts what a leader was suspected for, FalseAlarms what has proved wrong.
	Hints       [detector.NumWays]uint64 `json:"hints,omitzero"`
	FalseAlarms uint64                   `json:"false_alarms,omitempty"`
	// Leaves means that the member stops because it was told to, or by itself.
	Leaves bool `json:"leaves,omitempty"`
}

// reads are numbers of reads by leaderlease.Path. That of none is 0.
type reads [leaderlease.PathForwarded + 1]uint64

// tally is what a member has counted since its start.
type tally struct {
	lease  leaderlease.Stats
	leader detector.Stats
}

// tally returns what is counted now, nothing without Config.Counted.
func (c *Config) tally() (t tally) {
	if c.Counted != nil {
		t.lease, t.leader = c.Counted()
	}
	return t
}

// since notes what was counted after before, if anything was.
func (t *tally) since(before *tally, at leaderlease.Instant) (notes []note) {
	var n note
	for i := range n.Reads {
		n.Reads[i] = more(t.lease.Reads[i], before.lease.Reads[i])
	}
	for i := range n.Hints {
		n.Hints[i] = more(t.leader.Hints[i], before.leader.Hints[i])
	}
	n.FalseAlarms = more(t.leader.FalseAlarms, before.leader.FalseAlarms)
	if n == (note{}) {
		return nil
	}
	n.At = at
	return []note{n}
}

// more is a - b, or a if it was counted anew in between (Lease.ResetStats).
func more(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return a - b
}

// gaps notes where events are missing: the ring keeps so many, and more happened before it
// was read.
func gaps(events []leaderlease.TraceEvent) (notes []note) {
	for i := 1; i < len(events); i++ {
		if due := events[i-1].Seq + 1; events[i].Seq > due {
			notes = append(notes, note{At: events[i].At, Lost: events[i].Seq - due})
		}
	}
	return notes
}

// lateNotes returns the notes from an instant on, of which at most maxNotes are kept.
func lateNotes(notes []note, at leaderlease.Instant) []note {
	n := max(0, len(notes)-maxNotes)
	for n < len(notes) && notes[n].At < at {
		n++
	}
	return notes[n:]
}

// suspicions says why a leader is suspected.
var suspicions = [detector.NumWays]string{
	detector.Silence: "it is silent", detector.Hint: "its connections have ended", detector.PreVote: "another member does, and it is silent",
	detector.Transfer: "it wishes another to lead", detector.Resignation: "it resigns", detector.LearntSilence: "it is silent for much longer than of late",
	detector.Obituary: "its guardian has said that it is dead",
}

// note takes a note.
func (t *track) note(n *note) {
	say := func(kind, text string) { t.flags = append(t.flags, mark{n.At, kind, text}) }
	t.left = t.left || n.Leaves
	if n.Reads != (reads{}) {
		t.reads = append(t.reads, n)
	}
	for way, times := range n.Hints {
		if times > 0 {
			say("suspects", "suspects its leader: "+suspicions[way])
		}
	}
	if n.FalseAlarms > 0 {
		say("false", "was wrong to suspect its leader, which lives")
	}
	if n.Lost > 0 {
		t.gaps = append(t.gaps, n.At)
		say("gap", fmt.Sprintf("%d events are lost here: more has happened than is kept", n.Lost))
	}
}
