package leasepage

import (
	"fmt"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// maxNotes bounds the notes of one process. A process makes one each feedInterval, so keep has
// fewer.
const maxNotes = 1 << 10

// history is what is known of one process.
type history struct {
	leasetrace.Process
	notes []note // in order of time
	// reading is the newest reading of the process's clock, and from is where a live picture
	// begins by that clock. Both are 0 for a recorded trace.
	reading, from leaderlease.Instant
}

// note is what a member says besides its trace: what it has counted since the note before, by
// an instant of its own clock. Members exchange notes as JSON.
type note struct {
	At leaderlease.Instant `json:"at"`
	// Lost is how many events are missing right before those of At.
	Lost uint64 `json:"lost,omitempty"`
	// Reads counts the reads that were served.
	Reads reads `json:"reads,omitzero"`
	// Hints counts suspicions of a leader by their reason, FalseAlarms those that were wrong.
	Hints       [detector.NumWays]uint64 `json:"hints,omitzero"`
	FalseAlarms uint64                   `json:"false_alarms,omitempty"`
	// Stops means that the member stops on purpose.
	Stops bool `json:"leaves,omitempty"`
}

// reads are numbers of reads by leaderlease.Path.
type reads [leaderlease.PathForwarded + 1]uint64

// counters is what a member has counted since its start.
type counters struct {
	lease  leaderlease.Stats
	leader detector.Stats
}

func (c *Config) counters() (t counters) {
	if c.Counted != nil {
		t.lease, t.leader = c.Counted()
	}
	return t
}

// since returns a note of what was counted after before, if anything was.
func (t *counters) since(before *counters, at leaderlease.Instant) (notes []note) {
	var n note
	for i := range n.Reads {
		n.Reads[i] = increase(t.lease.Reads[i], before.lease.Reads[i])
	}
	for i := range n.Hints {
		n.Hints[i] = increase(t.leader.Suspicions[i], before.leader.Suspicions[i])
	}
	n.FalseAlarms = increase(t.leader.FalseSuspicions, before.leader.FalseSuspicions)
	if n == (note{}) {
		return nil
	}
	n.At = at
	return []note{n}
}

// increase returns now - before, or now if Lease.ResetStats was called in between.
func increase(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// gapNotes returns a note for each place where events are missing: more happened than the ring
// of the trace keeps until it is read.
func gapNotes(events []leasetrace.Event) (notes []note) {
	for i := 1; i < len(events); i++ {
		if next := events[i-1].Seq + 1; events[i].Seq > next {
			notes = append(notes, note{At: events[i].At, Lost: events[i].Seq - next})
		}
	}
	return notes
}

// notesSince returns the notes from an instant on, at most the newest maxNotes.
func notesSince(notes []note, at leaderlease.Instant) []note {
	n := max(0, len(notes)-maxNotes)
	for n < len(notes) && notes[n].At < at {
		n++
	}
	return notes[n:]
}

// suspicionReasons says why a member suspects its leader.
var suspicionReasons = [detector.NumWays]string{
	detector.Silence: "it is silent", detector.ConnClosed: "its connections have ended", detector.PreVote: "it is silent, and another member suspects it",
	detector.Transfer: "it transfers its leadership", detector.Resignation: "it resigns", detector.LongSilence: "it is silent for much longer than of late",
	detector.ProcessDied: "its supervisor reports that its process is dead",
}

// addNote adds what a note says to the timeline.
func (t *timeline) addNote(n *note) {
	flag := func(kind, text string) { t.flags = append(t.flags, mark{n.At, kind, text}) }
	t.stops = t.stops || n.Stops
	if n.Reads != (reads{}) {
		t.reads = append(t.reads, n)
	}
	for way, times := range n.Hints {
		if times > 0 {
			flag("suspects", "suspects its leader: "+suspicionReasons[way])
		}
	}
	if n.FalseAlarms > 0 {
		flag("false", "hears from the leader that it suspected")
	}
	if n.Lost > 0 {
		t.gaps = append(t.gaps, n.At)
		flag("gap", fmt.Sprintf("%d events are lost here: more happened than the trace keeps", n.Lost))
	}
}
