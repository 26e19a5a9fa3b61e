package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/leaderlease/go/bench/internal/rawnode"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/internal/stale"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

const startTime = time.Second // what starting a cluster takes, about

// Check plans layer a. One goroutine measures each arm: several at once would measure
// the machine.
func (s *Suite) Check(t Timing) {
	var arms *rawnode.Arms
	s.add("check: start", time.Second, func(ctx context.Context) (err error) {
		if arms, err = rawnode.StartArms(ctx); err == nil {
			s.later(arms.Close)
		}
		return err
	})
	const armCount = 8 // known before there are any
	for round := range t.Rounds {
		for i := range armCount {
			s.add(fmt.Sprintf("check: round %d, arm %d of %d", round+1, i+1, armCount), t.Duration, func(context.Context) error {
				if len(arms.List) != armCount {
					return fmt.Errorf("%d arms, planned for %d", len(arms.List), armCount)
				}
				arm := &arms.List[rotated(armCount, round)[i]]
				runtime.GC() // the arm's own garbage is its own
				n, elapsed, err := arm.Measure(t.Duration)
				if err != nil {
					return err
				}
				s.Report.Measurements = append(s.Report.Measurements, report.Measurement{
					Layer: report.Check, Group: report.Group{{Key: "goroutines", Value: "1"}}, Arm: arm.Name, Op: "check",
					Round: round, Done: int64(n), Elapsed: elapsed,
				})
				return nil
			})
		}
	}
	s.stop("check")
}

// perTrial is about how long a trial takes in real time.
const perTrial = 3 * time.Millisecond

// Stale plans the partitions in virtual time.
func (s *Suite) Stale(trials int, seed uint64) {
	for _, arm := range []struct {
		name string
		kind leasetest.Kind
	}{{"raft ReadOnlyLeaseBased", leasetest.Stock}, {"leaderlease", leasetest.Library}} {
		s.add("stale: "+arm.name, time.Duration(trials)*perTrial, func(context.Context) error {
			t := stale.Run(arm.kind, trials, seed)
			s.Report.Staleness = append(s.Report.Staleness, report.Staleness{
				Arm: arm.name, Trials: t.Trials, StaleRuns: t.StaleTrials, Reads: t.Reads, StaleReads: t.Stale, Window: t.MeanWindow(),
			})
			return nil
		})
	}
}
