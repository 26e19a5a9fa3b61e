package sim

import (
	"cmp"
	"slices"
	"testing"

	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

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

// Where the traces of one member are missing, nothing is proved of how leases follow.
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
	compared := 0
	for seed := uint64(1); seed <= 6; seed++ {
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
	if compared < 20 {
		t.Errorf("%d pairs of leases were compared, want many", compared)
	}
}
