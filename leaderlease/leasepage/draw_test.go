package leasepage

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const msec = leaderlease.Instant(time.Millisecond)

// tracedProcess builds the trace of one process. Its clock is ahead of the test's.
type tracedProcess struct {
	leasetrace.Process
	ahead leaderlease.Instant
}

func newTraced(id uint64, ahead, hold time.Duration, at int) *tracedProcess {
	t := &tracedProcess{ahead: leaderlease.Instant(ahead)}
	t.Start = leasetrace.Start{
		ID: id, Incarnation: core.Incarnation(id<<32 | uint64(at)), At: t.clock(at), Hold: hold,
		Duration: 250 * time.Millisecond, MaxClockSkew: 100 * time.Millisecond, MaxPromise: 250 * time.Millisecond,
	}
	return t
}

func (t *tracedProcess) clock(at int) leaderlease.Instant {
	return t.ahead + leaderlease.Instant(at)*msec
}

func (t *tracedProcess) record(at int, e leasetrace.Event) {
	e.Seq, e.At = uint64(len(t.Events)+1), t.clock(at)
	t.Events = append(t.Events, e)
}

// leads records that the process leads from then on.
func (t *tracedProcess) leads(at int, term uint64) {
	t.record(at, leasetrace.Event{Kind: leasetrace.KindRaft, Term: term, Role: raft.StateLeader, Peer: t.Start.ID})
}

// renews records a round of 2 ms and the renewed lease.
func (t *tracedProcess) renews(at int, term uint64, voters ...*tracedProcess) {
	for _, v := range voters {
		promise := leasetrace.Event{Peer: t.Start.ID, Term: term, Instant: t.clock(at), Duration: t.Start.Duration, OK: true}
		promise.Kind = leasetrace.KindPromise
		v.record(at+1, promise)
		promise.Kind, promise.Number, promise.Reading = leasetrace.KindGrant, uint64(v.Start.Incarnation), v.clock(at+1)
		v.record(at+1, promise)
		promise.Kind, promise.Peer = leasetrace.KindCount, v.Start.ID
		t.record(at+2, promise)
	}
	t.record(at+2, leasetrace.Event{Kind: leasetrace.KindView, Term: term, Instant: t.clock(at + 250), Reading: t.clock(at + 2), Status: core.Valid})
}

// paused is a leader that stops for a second, and its successor; then that hands over.
func paused() []*tracedProcess {
	old, next, third := newTraced(1, time.Hour, 0, 10), newTraced(2, time.Minute, 0, 10), newTraced(3, 9*time.Hour, 0, 10)
	old.leads(100, 2)
	for at := 100; at <= 300; at += 50 {
		old.renews(at, 2, next, third)
	}
	third.record(400, leasetrace.Event{Kind: leasetrace.KindRequest, Peer: 2, Term: 3, Message: raftpb.MsgPreVote})
	next.record(560, leasetrace.Event{Kind: leasetrace.KindCandidacy, Peer: 3, Term: 3, Message: raftpb.MsgVote, OK: true})
	next.leads(570, 3)
	next.renews(571, 3, third)
	next.renews(621, 3, third)
	old.record(1300, leasetrace.Event{Kind: leasetrace.KindHeld, Term: 2, Status: core.Expired})
	old.record(1301, leasetrace.Event{Kind: leasetrace.KindRaft, Term: 3, Peer: 2})
	old.record(1301, leasetrace.Event{Kind: leasetrace.KindView, Status: core.NotLeader, Reading: old.clock(1301)})
	next.renews(1305, 3, old, third)
	next.record(1400, leasetrace.Event{Kind: leasetrace.KindRelease, Peer: 3, Term: 3, Instant: next.clock(1400), Number: 3, OK: true})
	next.record(1400, leasetrace.Event{Kind: leasetrace.KindView, Term: 3, Status: core.Transferring, Reading: next.clock(1400)})
	third.record(1401, leasetrace.Event{Kind: leasetrace.KindRequest, Peer: 2, Term: 3, Message: raftpb.MsgTimeoutNow, OK: true, Instant: next.clock(1400), Number: 3})
	third.leads(1404, 4)
	third.renews(1405, 4, old, next)
	return []*tracedProcess{old, next, third}
}

func processes(all ...*tracedProcess) (ps []leasetrace.Process) {
	for _, t := range all {
		ps = append(ps, t.Process)
	}
	return ps
}

var names = map[uint64]string{1: "n1", 2: "n2", 3: "n3"}

func near(a, b ms) bool { return a-b < 1.1 && b-a < 1.1 }

// shown is the part of a Lease that tests compare.
type shown struct {
	from, known, usable, end ms
	term                     uint64
	why                      string
	released                 bool
}

func (w *shown) is(g *Lease) bool {
	return near(g.From, w.from) && near(g.Known, w.known) && near(g.Usable, w.usable) && near(g.End, w.end) &&
		g.Term == w.term && g.Why == w.why && g.Released == w.released
}

// The picture of a leader that is paused, on one axis although clocks are hours apart.
func TestDraw(t *testing.T) {
	p := draw(processes(paused()...), names)
	if len(p.Lanes) != 3 || p.From != 0 || !near(p.To, 1397) {
		t.Fatalf("the picture has %d lanes from %v to %v, want 3 from 0 to 1397", len(p.Lanes), p.From, p.To)
	}
	for i, want := range [][]shown{
		{{90, 92, 440, 540, 2, "", false}},
		{{561, 563, 761, 861, 3, "", false}, {1295, 1297, 1390, 1390, 3, "transferring", false}},
		{{1395, 1397, 1545, 1645, 4, "", true}},
	} {
		got := p.Lanes[i].Leases
		if len(got) != len(want) {
			t.Errorf("%s has %d leases, want %d: %+v", p.Lanes[i].Name, len(got), len(want), got)
			continue
		}
		for k, w := range want {
			if !w.is(&got[k]) {
				t.Errorf("%s has the lease %+v, want %+v", p.Lanes[i].Name, got[k], w)
			}
		}
	}
}

// A lease that is renewed in its margin, or once it has run out, is another one: there were
// no reads in between.
func TestALeaseThatIsRenewedInItsMargin(t *testing.T) {
	sole := newTraced(1, 0, 0, 10)
	sole.leads(100, 2)
	for _, at := range []int{100, 200, 370, 700} { // 150 ms of reads, and a margin of 100 ms
		sole.renews(at, 2)
	}
	got := draw(processes(sole), names).Lanes[0].Leases
	want := []shown{{100, 102, 350, 372, 2, "", false}, {372, 372, 520, 620, 2, "", false}, {700, 702, 850, 950, 2, "", false}}
	if len(got) != len(want) {
		t.Fatalf("there are %d leases, want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		w.from, w.known, w.usable, w.end = w.from-10, w.known-10, w.usable-10, w.end-10
		if !w.is(&got[i]) {
			t.Errorf("lease %d is %+v, want %+v", i, got[i], w)
		}
	}
}

// soleVoter holds a lease that needs no renewal from 100 ms on.
func soleVoter() *tracedProcess {
	sole := newTraced(1, 0, 0, 10)
	sole.leads(100, 2)
	sole.record(100, leasetrace.Event{Kind: leasetrace.KindView, Term: 2, Instant: core.Forever, Reading: sole.clock(100), Status: core.Valid})
	sole.record(100, leasetrace.Event{Kind: leasetrace.KindHeld, Term: 2, OK: true, Status: core.Valid})
	return sole
}

// The lease of a sole voter needs no renewal: it lasts for as long as the process is heard,
// and silence is no pause.
func TestTheLeaseOfASoleVoter(t *testing.T) {
	sole := soleVoter()
	sole.record(60_100, leasetrace.Event{Kind: leasetrace.KindProbe, Peer: 2, Term: 2})
	lane := draw(processes(sole), names).Lanes[0]
	want := shown{90, 90, 60_090, 60_090, 2, "", false}
	if len(lane.Leases) != 1 || !want.is(&lane.Leases[0]) || lane.Leases[0].ReadTime != 0 || lane.Leases[0].After != 0 {
		t.Errorf("the leases are %+v, want one that lasts as long as the trace", lane.Leases)
	}
	if got := kindsOf(lane); slices.Contains(got, "paused") || len(lane.Heard) != 1 {
		t.Errorf("the flags are %q, and it is heard in %+v, want no pause", got, lane.Heard)
	}
	sole.record(60_200, leasetrace.Event{Kind: leasetrace.KindView, Term: 2, Status: core.Transferring, Reading: sole.clock(60_200)})
	if got := draw(processes(sole), names).Lanes[0].Leases[0]; got.End != 60_190 || got.Why == "" {
		t.Errorf("the lease is %+v, want its end at 60190 and the reason", got)
	}
}

// A second voter ends the lease that needs no renewal: the next lease has an end.
func TestASoleVoterGetsCompany(t *testing.T) {
	sole, second := soleVoter(), newTraced(2, 0, 0, 10)
	sole.renews(5000, 2, second)
	got := draw(processes(sole, second), names).Lanes[0].Leases
	if len(got) != 2 || got[0].ReadTime != 0 || got[1].ReadTime != 150 || got[0].Usable != got[1].From || got[0].Why == "" || !near(got[1].Usable, 5140) {
		t.Errorf("the leases are %+v, want one without an end, and one that allows reads for 150 ms from 4990 on", got)
	}
}

// A leader that is elected twice in a row has a lease in each term.
func TestANewTermIsANewLease(t *testing.T) {
	sole := newTraced(1, 0, 0, 10)
	sole.leads(100, 2)
	sole.renews(100, 2)
	sole.renews(150, 3)
	if got := draw(processes(sole), names).Lanes[0].Leases; len(got) != 2 || got[0].Term != 2 || got[1].Term != 3 || got[0].End > got[1].Known || got[0].Why == "" {
		t.Errorf("the leases are %+v, want one of term 2 that the next ends, and one of term 3", got)
	}
}

// The promise to n2 ends with its release, not 250 ms after it was made.
func TestDrawPromises(t *testing.T) {
	p := draw(processes(paused()...), names)
	if ps := p.Lanes[2].Promises; len(ps) != 3 || ps[0].To != "1" || !near(ps[0].End, 541) || ps[2].To != "2" || !near(ps[2].End, 1391) {
		t.Errorf("n3 has promised %+v, want n1 until 541, and n2 until 1391 at last", ps)
	}
}

func TestFlags(t *testing.T) {
	p := draw(processes(paused()...), names)
	var kinds []string
	for _, lane := range p.Lanes {
		for _, f := range lane.Flags {
			kinds = append(kinds, lane.Name+" "+f.Kind)
		}
	}
	want := []string{
		"n1 start", "n1 elected", "n1 paused", "n1 lost", "n1 down", "n2 start", "n2 asks", "n2 elected", "n2 paused", "n2 transfer",
		"n3 start", "n3 refused", "n3 asked", "n3 elected",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("the flags are %q, want %q", kinds, want)
	}
}

// A trace without its beginning, from a ring or a damaged file, gets no start and no hold.
func TestDrawFromTheMiddle(t *testing.T) {
	all := processes(paused()...)
	for i := range all {
		all[i].Events = all[i].Events[4:]
	}
	p := draw(all, names)
	if l := p.Lanes[0].Leases; len(l) != 1 || l[0].Usable-l[0].From != 300 {
		t.Errorf("n1 is drawn with %+v, want one lease with reads until 300 ms after its first known round", l)
	}
	for _, lane := range p.Lanes {
		if len(lane.RestartHolds) > 0 || slices.ContainsFunc(lane.Flags, func(f Flag) bool { return f.Kind == "start" }) {
			t.Errorf("%s is drawn with a start that is not there: %+v", lane.Name, lane.Flags)
		}
	}
}

// A restarted process is drawn after the one before, also if nothing else says when it ran.
func TestARestartWithoutAnyLeader(t *testing.T) {
	again := newTraced(1, 0, 250*time.Millisecond, 5000)
	again.Start.Term = 7
	again.record(5100, leasetrace.Event{Kind: leasetrace.KindVoters})
	all := processes(append(paused(), again)...)
	lane := draw(all, names).Lanes[0]
	if h := lane.Heard; len(h) != 3 || h[2].From < h[1].To {
		t.Errorf("n1 was heard %+v, want before and after its pause, and again after that and somewhere", h)
	}
	if len(lane.RestartHolds) != 1 || lane.RestartHolds[0][1]-lane.RestartHolds[0][0] != 250 {
		t.Errorf("n1 holds %v, want for 250 ms once", lane.RestartHolds)
	}
	if !slices.ContainsFunc(lane.Flags, func(f Flag) bool { return f.Kind == "killed" }) {
		t.Errorf("n1 has the flags %+v, want that its first process has ended", lane.Flags)
	}
}

// Names are input: none of them ends the HTML element that it is in.
func TestWriteEscapes(t *testing.T) {
	evil := map[uint64]string{1: "</script><script>alert(1)</script>", 2: "{{script}}", 3: "<!--"}
	pic := Draw(processes(paused()...), evil)
	var b bytes.Buffer
	if err := Write(&b, pic); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "</script"); n != 2 || strings.Contains(page, "alert(1)<") || strings.Contains(page, "{{style}}") {
		t.Errorf("the page has %d ends of scripts, want 2, and nothing of the names as markup", n)
	}
	_, rest, _ := strings.Cut(page, `id="picture">`)
	data, _, _ := strings.Cut(rest, "</script>")
	var got Picture
	if err := json.Unmarshal([]byte(data), &got); err != nil || len(got.Lanes) != 3 || !slices.ContainsFunc(got.Lanes, func(l *Lane) bool { return l.Name == evil[1] }) {
		t.Errorf("the picture in the page is %v %+v, want three lanes with their names", err, got)
	}
	if len(page)-len(data) > 60_000 {
		t.Errorf("the page has %d bytes without its picture, want at most 60 kB", len(page)-len(data))
	}
}

// A probe that takes long to arrive makes the voter's clock look early, by less than is
// known. The lease that it is handed is drawn after the lease that was given up for it.
func TestAHandOverIsDrawnInOrder(t *testing.T) {
	old, next := newTraced(1, time.Hour, 0, 10), newTraced(2, time.Minute, 0, 10)
	old.leads(100, 2)
	grant := leasetrace.Event{
		Peer: 2, Term: 2, Instant: old.clock(100), Duration: old.Start.Duration, Reading: next.clock(120), Number: uint64(next.Start.Incarnation), OK: true,
	}
	grant.Kind = leasetrace.KindGrant
	next.record(120, grant)
	grant.Kind, grant.Peer = leasetrace.KindCount, 2
	old.record(120, grant)
	old.record(120, leasetrace.Event{Kind: leasetrace.KindView, Term: 2, Instant: old.clock(350), Reading: old.clock(120), Status: core.Valid})
	old.record(140, leasetrace.Event{Kind: leasetrace.KindView, Term: 2, Status: core.Transferring, Reading: old.clock(140)})
	next.leads(142, 3)
	next.renews(143, 3, old)
	given, taken := draw(processes(old, next), names).Lanes[0].Leases[0], draw(processes(old, next), names).Lanes[1].Leases[0]
	if given.Usable != 140 || taken.From < given.Usable || taken.Before < 10 {
		t.Errorf("reads end at %v, and the next lease begins at %v ± %v, want it behind 140, and 10 ms and more unknown", given.Usable, taken.From, taken.Before)
	}
}

// Without the trace of a voter it is not proved that no lease is missing.
func TestDrawWithoutTheTraceOfAVoter(t *testing.T) {
	all := paused()
	all[0].record(1500, leasetrace.Event{Kind: leasetrace.KindVoter, Peer: 4, Number: 1})
	p := Draw(processes(all...), names)
	if len(p.Lanes) != 4 || p.Proved || !slices.ContainsFunc(p.Lanes, func(l *Lane) bool { return l.Name == "4" && len(l.Heard) == 0 }) {
		t.Errorf("there are %d lanes, proved %v, want an empty one for the voter 4, and nothing proved", len(p.Lanes), p.Proved)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
