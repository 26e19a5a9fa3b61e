package sim

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Every kind of event occurs, and every received message has a matching send.
func TestTracesHaveEveryKind(t *testing.T) {
	skipShort(t)
	const seeds = 8
	var kinds [leasetrace.NumKinds]int
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: func(s *Schedule) {
			s.Swarm.Plain = 0
			s.AddDeathNotices()
		}})
		r.Require(t)
		v := leasetrace.Judge(r.Traces)
		for k, n := range v.Kinds {
			kinds[k] += n
		}
		if v.Unmatched > 0 {
			t.Errorf("seed %d: %d messages have no matching send", seed, v.Unmatched)
		}
		if seed == 1 {
			refusesEachFalseDecision(t, r.Traces)
		}
	}
	never := map[leasetrace.Kind]string{
		leasetrace.KindNone:     "it is no event",
		leasetrace.KindDisabled: "no member turns leases off",
	}
	for k, n := range kinds {
		if k == int(leasetrace.KindInvalidate) || k == int(leasetrace.KindClose) {
			continue // some seeds have it
		}
		if _, none := never[leasetrace.Kind(k)]; (n == 0) != none {
			t.Errorf("%d events of kind %v in %d seeds: %s", n, leasetrace.Kind(k), seeds, never[leasetrace.Kind(k)])
		}
	}
}

// refusesEachFalseDecision turns one decision of each kind around, somewhere in the
// middle of the run, and wants it to be refused.
func refusesEachFalseDecision(t *testing.T, all []leasetrace.Process) {
	t.Helper()
	for _, k := range []leasetrace.Kind{
		leasetrace.KindPromise, leasetrace.KindCount, leasetrace.KindRequest, leasetrace.KindCandidacy,
		leasetrace.KindVoteOut, leasetrace.KindHeld, leasetrace.KindConfPending,
	} {
		told := slices.Clone(all)
		for p := range slices.Backward(told) {
			events := slices.Clone(told[p].Events)
			i := slices.IndexFunc(events, func(e leasetrace.Event) bool {
				return e.Kind == k
			})
			if i < 0 {
				continue
			}
			events[i].OK = !events[i].OK
			told[p].Events = events
			if v := leasetrace.Judge(told); v.Refused == nil {
				t.Errorf("a %v was turned around, and is not refused: %v", k, told[p].Events[i])
			}
			break
		}
	}
}

var record = flag.Bool("record", false, "record docs/incidents anew")

const incidents = "../../../docs/incidents"

// The rules allow the incidents in the documents, both as recorded and as the simulator now
// plays their schedules.
func TestIncidentsAreAllowed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(incidents, "*.schedule"))
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %q, %v, want five incidents", files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".schedule"), func(t *testing.T) {
			recorded := strings.TrimSuffix(path, ".schedule") + ".trace"
			now := simulated(t, path)
			if *record {
				var b bytes.Buffer
				if err := errors.Join(leasetrace.Write(&b, now), os.WriteFile(recorded, b.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			then, err := leasetrace.ReadFiles(recorded)
			if err != nil {
				t.Fatal(err)
			}
			for what, all := range map[string][]leasetrace.Process{"recorded": then, "now": now} {
				p := leasepage.Draw(all, nil)
				if p.Refused != "" || !p.Proved || !slices.ContainsFunc(p.Lanes, func(l *leasepage.Lane) bool { return len(l.Leases) > 0 }) {
					t.Errorf("%s: the picture says %q %q, want leases, and that all is allowed", what, p.Refused, p.Verdict)
				}
			}
		})
	}
}

// simulated returns the traces of a schedule, which breaks nothing.
func simulated(t *testing.T, path string) []leasetrace.Process {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchedule(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t, Config{Seed: s.Seed, Schedule: s, Trace: true})
	r.Require(t)
	return r.Traces
}

// drawnLease is a lease in a picture, and the name of its member.
type drawnLease struct {
	leasepage.Lease
	member string
}

func leasesOf(p *leasepage.Picture) (all []drawnLease) {
	for _, lane := range p.Lanes {
		if slices.ContainsFunc(lane.Flags, func(f leasepage.Flag) bool { return f.Kind == "clock" }) {
			continue // its clock has stepped
		}
		for _, l := range lane.Leases {
			all = append(all, drawnLease{l, lane.Name})
		}
	}
	slices.SortFunc(all, func(a, b drawnLease) int { return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.From, b.From)) })
	return all
}

// Without the traces of one member, the picture does not prove that leases follow one another.
func TestNothingIsProvedWithoutAMember(t *testing.T) {
	r := Run(t, Config{Seed: 1, Trace: true, Amend: func(s *Schedule) { s.Swarm.Plain = 0 }})
	missing := r.Traces[0].Start.ID
	rest := slices.DeleteFunc(slices.Clone(r.Traces), func(p leasetrace.Process) bool { return p.Start.ID == missing })
	if p := leasepage.Draw(rest, nil); p.Refused != "" || p.Proved || len(p.Lanes) == 0 {
		t.Errorf("without member %x the picture says %q %q, proved %v", missing, p.Verdict, p.Refused, p.Proved)
	}
}

// The simulator's clocks begin anywhere, run at different rates, and stop. Reads under
// leases of different terms are drawn one after the other, as far as clocks leave that open.
func TestLeasesAreDrawnApart(t *testing.T) {
	compared, seeds := 0, uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(t, Config{Seed: seed, Trace: true, Amend: func(s *Schedule) { s.Swarm.Plain = 0 }})
		r.Require(t)
		p := leasepage.Draw(r.Traces, nil)
		if !p.Proved || p.Refused != "" {
			t.Fatalf("seed %d: the picture says %q %q", seed, p.Verdict, p.Refused)
		}
		all := leasesOf(p)
		for i := range all {
			l := &all[i]
			if l.From > l.Known || l.Usable > l.End || l.Before < 0 || l.After < 0 {
				t.Errorf("seed %d: %s is drawn with a lease from %v, known %v, usable until %v, end %v, ± %v and %v",
					seed, l.member, l.From, l.Known, l.Usable, l.End, l.Before, l.After)
			}
			for k := range all[:i] {
				if o := &all[k]; o.Term < l.Term {
					compared++
					if over := o.Usable - o.After - l.From; over > 0.01 {
						t.Errorf("seed %d: %s reads under term %d until %v, and the lease of %s in term %d begins at %v ± %v",
							seed, o.member, o.Term, o.Usable, l.member, l.Term, l.From, l.Before)
					}
				}
			}
		}
	}
	if compared < 3*int(seeds) {
		t.Errorf("%d pairs of leases were compared, want many", compared)
	}
}
