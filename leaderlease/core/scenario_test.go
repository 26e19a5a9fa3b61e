package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"
)

// TestScenarios runs the scripts in testdata. Each begins with a fresh leader's
// half (node 1; a promise of 1s, a margin of 200ms, 1.2s for a transfer) and no
// guards. Instants are written as the time since the clock's origin; now is the
// clock of the node that a command is about. Rewrite with
//
//	go test ./leaderlease/core -run TestScenarios -rewrite
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			t.Skip("a fuzz corpus")
		}
		s := &scenario{lease: NewLease(testParams), guards: map[uint64]*Guard{}}
		datadriven.RunTest(t, path, s.run)
	})
}

// scenario is what one script acts on.
type scenario struct {
	lease  *Lease
	view   View
	guards map[uint64]*Guard
}

// run executes one command. Those that touch the leader publish a view, as the
// driver does, and print it.
func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	a := args{t: t, d: d}
	if out, ok := s.ask(a); ok {
		return out
	}
	if out, ok := s.voter(a); ok {
		return out
	}
	out, ok := s.leader(a)
	if !ok {
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	s.view = s.lease.View(a.instant("now"))
	return out + fmt.Sprintf("term=%d end=%v usable=%v status=%v\n", s.view.Term, stamp(s.view.End), stamp(s.view.Usable), s.view.Status)
}

// leader changes the leader's half.
func (s *scenario) leader(a args) (out string, ok bool) {
	now := a.instant("now")
	switch a.d.Cmd {
	case "lead":
		s.lease.Lead(a.number("term"), now)
	case "step-down":
		s.lease.StepDown()
	case "voters":
		s.lease.SetVoters(Voters(&raftpb.ConfState{Voters: a.numbers("in"), VotersOutgoing: a.numbers("out")}))
	case "own-commit":
		s.lease.OwnTermCommitted()
	case "ack":
		g := Grant{Sent: a.instant("sent"), Duration: cmp.Or(a.duration("duration"), testParams.Duration)}
		renewed := s.lease.Count(a.number("voter"), a.number("term"), g, now)
		out = fmt.Sprintf("renewed=%t ", renewed)
	case "release":
		r := s.lease.Release(now)
		out = fmt.Sprintf("release=%d@%v ", r.Term, stamp(r.At))
	case "invalidate":
		s.lease.Invalidate(now)
	case "fail-clock":
		s.lease.FailClock()
	case "leader-clock-stepped":
		s.lease.StartOver(now)
	case "set":
		s.set(a)
	case "drift":
		out = s.drift(a)
	default:
		return "", false
	}
	return out, true
}

func (s *scenario) set(a args) {
	on := !a.d.HasArg("off")
	switch {
	case a.d.HasArg("closed"):
		s.lease.Close()
	case a.d.HasArg("disabled"):
		s.lease.SetDisabled(on)
	case a.d.HasArg("restart-hold"):
		s.lease.SetRestartHold(on)
	case a.d.HasArg("conf-pending"):
		s.lease.SetConfPending(on)
	case a.d.HasArg("disk-stalled"):
		s.lease.SetDiskStalled(on)
	}
}

// ask reads the leader's half and changes nothing.
func (s *scenario) ask(a args) (out string, ok bool) {
	now := a.instant("now")
	switch a.d.Cmd {
	case "probe":
		p, ok := s.lease.Probe(now)
		if !ok {
			return "none\n", true
		}
		return fmt.Sprintf("sent=%v duration=%v\n", stamp(p.Sent), p.Duration), true
	case "check":
		return fmt.Sprintln(s.view.Check(now)), true
	case "peers":
		for _, p := range s.lease.Peers(now) {
			out += fmt.Sprintf("%d: promised=%v age=%v clock-suspect=%t\n", p.ID, p.Promised, p.GrantAge, p.ClockSuspect)
		}
		return out, true
	}
	return "", false
}

// voter acts on one guard.
func (s *scenario) voter(a args) (out string, ok bool) {
	now, id := a.instant("now"), a.number("voter")
	g := s.guards[id]
	switch a.d.Cmd {
	case "start":
		s.guards[id] = NewGuard(now, Incarnation(max(a.number("incarnation"), 1)), cmp.Or(a.duration("max"), testParams.Duration), a.duration("hold"))
		g = s.guards[id]
	case "promise":
		p := Probe{Sent: a.instant("sent"), Duration: cmp.Or(a.duration("duration"), testParams.Duration)}
		out = fmt.Sprintf("promised=%t ", g.Promise(a.number("leader"), a.number("term"), p, ProcessID{}, now))
	case "grant":
		grant, ok := g.Grant(a.number("leader"), a.number("term"), now)
		if !ok {
			return "none\n", true
		}
		return fmt.Sprintf("sent=%v duration=%v incarnation=%d\n", stamp(grant.Sent), grant.Duration, grant.Incarnation), true
	case "admit":
		out = fmt.Sprintf("admitted=%t ", g.Admit(a.release(), now))
	case "released":
		r, ok := g.Released(a.number("term"))
		return fmt.Sprintf("%t %d@%v\n", ok, r.Term, stamp(r.At)), true
	case "bound":
	case "in-term":
		g.SetTerm(a.number("term"))
	case "clock-stepped":
		g.StartOver(now)
	default:
		return "", false
	}
	info := g.Info(now)
	return out + fmt.Sprintf("bound=%t owes=%t promise=%v hold=%v\n", g.Bound(now), g.Owes(now), info.Remaining, info.Hold), true
}

// drift sends rounds of heartbeats to one voter with a clock that gains ppm parts per
// million on the leader's, and says when the leader changes its mind about it.
func (s *scenario) drift(a args) (out string) {
	at, id := a.instant("now"), a.number("voter")
	every, rtt := a.duration("every"), a.duration("rtt")
	incarnation, read := Incarnation(a.number("incarnation")), a.instant("reading")
	ppm := a.signed("ppm")
	suspect := false
	for _, p := range s.lease.Peers(at) {
		suspect = suspect || p.ID == id && p.ClockSuspect
	}
	last := at.Add(a.duration("for"))
	for start := at; at <= last; at = at.Add(every) {
		passed := int64(at.Sub(start))
		reading := read.Add(time.Duration(passed + passed/1e6*ppm))
		g := Grant{Sent: at, Duration: testParams.Duration, Reading: reading, Incarnation: incarnation}
		now := at.Add(rtt)
		s.lease.Count(id, s.lease.Term(), g, now)
		is := slices.ContainsFunc(s.lease.Peers(now), func(p PeerInfo) bool { return p.ID == id && p.ClockSuspect })
		if is != suspect {
			suspect = is
			out += fmt.Sprintf("suspect=%t after %v\n", is, at.Sub(start))
		}
	}
	return out
}

// stamp prints an instant as the time since the clock's origin.
func stamp(i Instant) string {
	if i == Forever {
		return "forever"
	}
	return time.Duration(i).String()
}

// args reads a command's arguments; those that are absent are zero.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) text(key string) string {
	switch vals := a.vals(key); len(vals) {
	case 0:
		return ""
	case 1:
		return vals[0]
	default:
		a.d.Fatalf(a.t, "%s has %d values, want one", key, len(vals))
		return ""
	}
}

func (a args) vals(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a args) instant(key string) Instant { return Instant(a.duration(key)) }

func (a args) duration(key string) time.Duration {
	return must(a, key, time.ParseDuration, "0s")
}

func (a args) signed(key string) int64 {
	return must(a, key, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }, "0")
}

func (a args) number(key string) uint64 {
	return must(a, key, parseID, "0")
}

func (a args) numbers(key string) (ids []uint64) {
	for _, v := range a.vals(key) {
		id, err := parseID(v)
		if err != nil {
			a.d.Fatalf(a.t, "%s: %v", key, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// release reads release=term@instant.
func (a args) release() *Release {
	term, at, ok := strings.Cut(a.text("release"), "@")
	if !ok {
		return nil
	}
	instant, err := time.ParseDuration(at)
	if err != nil {
		a.d.Fatalf(a.t, "release: %v", err)
	}
	id, err := parseID(term)
	if err != nil {
		a.d.Fatalf(a.t, "release: %v", err)
	}
	return &Release{Term: id, At: Instant(instant)}
}

func parseID(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

func must[T any](a args, key string, parse func(string) (T, error), absent string) T {
	v, err := parse(cmp.Or(a.text(key), absent))
	if err != nil {
		a.d.Fatalf(a.t, "%s: %v", key, err)
	}
	return v
}
