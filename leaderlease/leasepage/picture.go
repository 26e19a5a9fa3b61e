package leasepage

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Picture is what the page shows. Its times are milliseconds on one axis for all
// members.
type Picture struct {
	Lanes []*Lane `json:"lanes"`
	// From and To are where the events begin and end.
	From ms `json:"from"`
	To   ms `json:"to"`
	// Verdict is what the judge says of recorded traces, Refused what the rules do not
	// allow. Proved means that the judge has seen all, so leases of different terms are
	// known to follow one another.
	Verdict string `json:"verdict,omitempty"`
	Refused string `json:"refused,omitempty"`
	Proved  bool   `json:"proved,omitempty"`
}

// ms is milliseconds, to a microsecond.
type ms float64

// Lane is one member.
type Lane struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Learner means that it does not vote, as far as that is known.
	Learner bool `json:"learner,omitempty"`
	// Heard are the times that events tell of, by process, less those of its pauses.
	Heard []Heard `json:"heard"`
	// Holds are restart holds.
	Holds    [][2]ms   `json:"holds"`
	Leases   []Lease   `json:"leases"`
	Promises []Promise `json:"promises"`
	// Renewals are pairs: when a quorum round was sent, and when it had renewed the lease.
	Renewals []ms `json:"renewals"`
	// Reads are how many were served until an instant, since the one before or in 100 ms
	// at most, by path: the instant, under the lease, joined, by a round, forwarded. Traces
	// do not tell of them.
	Reads [][5]ms `json:"reads"`
	Flags []Flag  `json:"flags"`
}

// Heard is a span that the events of one process tell of.
type Heard struct {
	From ms `json:"from"`
	To   ms `json:"to"`
	// Loose means that nothing says where on the axis the process belongs.
	Loose bool `json:"loose,omitempty"`
}

// Lease is one that was held without a break: reads were allowed from Known until
// Usable, and nobody else could be elected from From until End.
type Lease struct {
	Term   uint64 `json:"term"`
	From   ms     `json:"from"`
	Known  ms     `json:"known"`
	Usable ms     `json:"usable"`
	End    ms     `json:"end"`
	// Reads is for how long after the sending of its round each renewal allows reads,
	// Margin how much longer nobody else can be elected. Reads is 0 if the holder is the
	// only voter, whose lease does not expire.
	Reads  ms `json:"reads,omitempty"`
	Margin ms `json:"margin"`
	// Before and After are how far the beginning and the end may be from where they are
	// drawn.
	Before ms `json:"before"`
	After  ms `json:"after"`
	// Loose means that nothing says where on the axis it belongs.
	Loose bool `json:"loose,omitempty"`
	// Why says what the lease was given up for, nothing if it has run out.
	Why string `json:"why,omitempty"`
	// Released means that the leader before has released this one from waiting.
	Released bool `json:"released,omitempty"`
}

// Promise is one that a member has kept renewing to a leader.
type Promise struct {
	To   string `json:"to"` // the ID of the leader
	Term uint64 `json:"term"`
	From ms     `json:"from"`
	End  ms     `json:"end"`
}

// Flag is something that has happened at an instant.
type Flag struct {
	At   ms     `json:"at"`
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Draw turns traces into a picture. Processes of one member are given in the order in
// which they ran. Names are those of members, by ID; who has none is called by its ID.
func Draw(all []leasetrace.Process, names map[uint64]string) *Picture {
	known := make([]told, len(all))
	for i := range all {
		known[i].Process = all[i]
	}
	tracks := followAll(known, names)
	align(tracks)
	begin := int64(math.MaxInt64)
	for _, t := range tracks {
		on, _ := t.axis.place(t.first)
		begin = min(begin, on)
	}
	return drawn(tracks, names, begin)
}

func followAll(all []told, names map[uint64]string) (tracks []*track) {
	newest := make(map[uint64]*track)
	for i := range all {
		p := &all[i]
		if p.Start.Duration == 0 {
			continue // its first line cannot be read
		}
		t := follow(p, names)
		if before := newest[p.Start.ID]; before != nil {
			before.replaced = true
		}
		newest[p.Start.ID] = t
		tracks = append(tracks, t)
	}
	return tracks
}

// drawn makes the picture of what is aligned. Its times count from zero on the axis.
func drawn(tracks []*track, names map[uint64]string, zero int64) *Picture {
	pic, lanes := &Picture{Lanes: []*Lane{}}, make(map[uint64]*Lane)
	for i, t := range tracks {
		id := t.p.Start.ID
		if lanes[id] == nil {
			lanes[id] = newLane(id, names)
			pic.Lanes = append(pic.Lanes, lanes[id])
		}
		t.zero = zero
		t.ends()
		t.draw(lanes[id])
		from, to := t.ms(t.first), t.ms(t.last)
		if i == 0 {
			pic.From, pic.To = from, to
		}
		pic.From, pic.To = min(pic.From, from), max(pic.To, to)
	}
	slices.SortStableFunc(pic.Lanes, func(a, b *Lane) int { return compareNames(a.Name, b.Name) })
	return pic
}

// unheard adds an empty lane for a member that nothing is known of: it may hold a lease.
func (p *Picture) unheard(id uint64, names map[uint64]string) (added bool) {
	if slices.ContainsFunc(p.Lanes, func(l *Lane) bool { return l.ID == hex(id) }) {
		return false
	}
	p.Lanes = append(p.Lanes, newLane(id, names))
	slices.SortStableFunc(p.Lanes, func(a, b *Lane) int { return compareNames(a.Name, b.Name) })
	return true
}

// ms returns where a reading of t's process is on the axis.
func (t *track) ms(at core.Instant) ms {
	on, _ := t.axis.place(at)
	return rounded(on - t.zero)
}

func rounded(ns int64) ms { return ms(float64(ns/int64(time.Microsecond)) / 1000) }

// Judged is Draw for recorded traces, with what the judge says of them.
func Judged(all []leasetrace.Process, names map[uint64]string) *Picture {
	pic, v := Draw(all, names), leasetrace.Judge(all)
	switch err := v.Err(); {
	case v.Refused != nil:
		pic.Refused = v.Refused.Error()
	case err != nil:
		pic.Verdict = err.Error()
	default:
		pic.Proved = true
		pic.Verdict = fmt.Sprintf("%d events of %d processes are judged, and allowed", v.Events(), len(v.Processes))
	}
	for i := range all {
		for j := range all[i].Events {
			if e := &all[i].Events[j]; e.Kind == leaderlease.TraceVoter && pic.unheard(e.Peer, names) {
				pic.Proved = false // of the others only
				pic.Verdict += fmt.Sprintf("; there is no trace of %s, which votes", called(e.Peer, names))
			}
		}
	}
	return pic
}

func newLane(id uint64, names map[uint64]string) *Lane {
	return &Lane{
		ID: hex(id), Name: called(id, names), Heard: []Heard{}, Holds: [][2]ms{}, Leases: []Lease{},
		Promises: []Promise{}, Renewals: []ms{}, Reads: [][5]ms{}, Flags: []Flag{},
	}
}

// draw adds what one process has to say to the lane of its member.
func (t *track) draw(l *Lane) {
	from := t.first
	for _, p := range t.pauses {
		if p[0] >= from {
			l.Heard = append(l.Heard, Heard{t.ms(from), t.ms(p[0]), t.loose})
		}
		from = max(from, p[1])
	}
	l.Heard = append(l.Heard, Heard{t.ms(from), t.ms(t.last), t.loose})
	if t.whole && t.p.Start.Hold > 0 {
		l.Holds = append(l.Holds, [2]ms{t.ms(t.p.Start.At), t.ms(t.p.Start.At.Add(t.p.Start.Hold))})
	}
	for i := range t.leases {
		s := &t.leases[i]
		_, before := t.axis.place(s.from)
		_, after := t.axis.place(s.usable)
		reads := rounded(int64(t.p.Start.Duration - t.p.Start.MaxClockSkew))
		if s.sole {
			reads = 0
		}
		l.Leases = append(l.Leases, Lease{
			Term: s.term, From: t.ms(s.from), Known: t.ms(s.known), Usable: t.ms(s.usable), End: t.ms(s.end),
			Reads: reads, Margin: rounded(int64(t.p.Start.MaxClockSkew)),
			Before: rounded(before), After: rounded(after), Why: s.why, Released: s.released,
			Loose: t.loose,
		})
	}
	for i := range t.promises {
		s := &t.promises[i]
		l.Promises = append(l.Promises, Promise{hex(s.peer), s.term, t.ms(s.from), t.ms(s.end)})
	}
	for _, at := range t.renewals {
		l.Renewals = append(l.Renewals, t.ms(at))
	}
	for _, n := range t.reads {
		r := n.Reads
		l.Reads = append(l.Reads, [5]ms{t.ms(n.At), ms(r[leaderlease.PathLease]), ms(r[leaderlease.PathJoined]), ms(r[leaderlease.PathReadIndex]), ms(r[leaderlease.PathForwarded])})
	}
	for _, f := range t.flags {
		l.Flags = append(l.Flags, Flag{t.ms(f.at), f.kind, f.text})
	}
}
