package suite

import (
	"context"
	"time"

	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/stale"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// perTrial is what a trial in virtual time takes, about.
const perTrial = 3 * time.Millisecond

// Stale plans the partitions in virtual time.
func (s *Suite) Stale(trials int, seed uint64) {
	for _, arm := range []struct {
		name string
		kind leasetest.Kind
	}{{"raft ReadOnlyLeaseBased", leasetest.Stock}, {"leaderlease", leasetest.Library}} {
		s.add("stale: "+arm.name, time.Duration(trials)*perTrial, func(context.Context) error {
			t := stale.Run(arm.kind, trials, seed, nil)
			s.Report.Staleness = append(s.Report.Staleness, report.Staleness{
				Arm: arm.name, Trials: t.Trials, StaleRuns: t.StaleTrials, Reads: t.Reads, StaleReads: t.Stale, Window: t.MeanWindow(),
			})
			return nil
		})
	}
}
