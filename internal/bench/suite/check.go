package suite

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/leaderlease/go/internal/bench/check"
	"github.com/leaderlease/go/internal/bench/report"
)

const startTime = time.Second // what starting a cluster takes, about

// Check plans layer a. Each arm is measured by one goroutine, on all processors
// at once it would measure the machine.
func (s *Suite) Check(t Timing) {
	var arms *check.Arms
	s.add("check: start", time.Second, func(ctx context.Context) (err error) {
		if arms, err = check.Start(ctx); err == nil {
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
