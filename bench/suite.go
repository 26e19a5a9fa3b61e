// Package bench plans what leasebench measures: which arms, under which conditions, how
// often and in which order. Arms of a comparison differ in one thing. A run interleaves
// the rounds of all arms, in an order that turns from round to round, so that other work
// on the machine affects every arm alike.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
)

// step is one thing to do, and about how long it takes.
type step struct {
	name  string
	takes time.Duration
	run   func(ctx context.Context) error
}

// Suite is a plan, and the report of its run.
type Suite struct {
	Report  *report.Report
	steps   []step
	closers []func() error
}

// New returns an empty plan.
func New() *Suite {
	return &Suite{Report: &report.Report{Environment: report.Here()}}
}

func (s *Suite) add(name string, takes time.Duration, run func(ctx context.Context) error) {
	s.steps = append(s.steps, step{name, takes, run})
}

// later registers a function for the end of a part or of the run.
func (s *Suite) later(f func() error) { s.closers = append(s.closers, f) }

// Names returns the names of all steps.
func (s *Suite) Names() []string {
	var names []string
	for _, step := range s.steps {
		names = append(names, step.name)
	}
	return names
}

// Takes returns about how long the plan takes.
func (s *Suite) Takes() time.Duration {
	var d time.Duration
	for _, step := range s.steps {
		d += step.takes
	}
	return d
}

// Run carries out the plan. Before each step it calls progress with the step's name
// and how much of the plan is done. What was measured before an error is in the Report.
func (s *Suite) Run(ctx context.Context, progress func(step string, done time.Duration)) error {
	err := errors.Join(s.run(ctx, progress), s.closeAll())
	if err != nil {
		s.Report.Note("The run was cut short: %s", report.WithoutPaths(err.Error()))
	}
	s.Report.Environment.Finish()
	return err
}

// closeAll closes what was registered, last first.
func (s *Suite) closeAll() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// stop plans the end of the clusters of a part, so that they do not run beside the next
// part.
func (s *Suite) stop(part string) {
	s.add(part+": stop", time.Second, func(context.Context) error { return s.closeAll() })
}

func (s *Suite) run(ctx context.Context, progress func(string, time.Duration)) error {
	var done time.Duration
	for _, step := range s.steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress(step.name, done)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		done += step.takes
	}
	return nil
}

// Timing says how long and how often each arm is measured.
type Timing struct {
	Rounds   int
	Warmup   time.Duration
	Duration time.Duration
}

// Validate returns an error for each invalid field of t.
func (t Timing) Validate() error {
	if t.Rounds < 1 || t.Duration <= 0 || t.Warmup < 0 {
		return fmt.Errorf("rounds %d must be at least 1, duration %v positive and warm-up %v not negative", t.Rounds, t.Duration, t.Warmup)
	}
	return nil
}

// rotated returns the numbers 0 to n−1, with another first one in each round.
func rotated(n, round int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = (i + round) % n
	}
	return all
}

// Work is a load without its target.
type Work struct {
	Clients      int
	WritePercent int
	Zipf         float64
	// Rate is operations per second in an open loop, 0 for a closed loop.
	Rate float64
}

// conditions prints w as key=value, separated by slashes.
func (w *Work) conditions() string {
	keys, loop := "uniform", "closed"
	if w.Zipf > 0 {
		keys = fmt.Sprintf("zipf%v", w.Zipf)
	}
	if w.Rate > 0 {
		loop = fmt.Sprintf("open-%v/s", w.Rate)
	}
	return fmt.Sprintf("clients=%d/writes=%d%%/keys=%s/loop=%s", w.Clients, w.WritePercent, keys, loop)
}

// run loads target.
func (w *Work) run(ctx context.Context, target load.Target, keys int, floor *load.Floor, t Timing, round int) (res *load.Result, err error) {
	l := w.load(target, keys, floor, t, round)
	if w.Rate > 0 {
		pacer, err := load.NewSleeper()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, pacer.Close()) }()
		l.Sleep = pacer.Sleep
	}
	return l.Run(ctx)
}

func (w *Work) load(target load.Target, keys int, floor *load.Floor, t Timing, round int) load.Load {
	return load.Load{
		Target: target, Clients: w.Clients, WritePercent: w.WritePercent, Rate: w.Rate,
		Keys: load.Keys{Count: keys, Zipf: w.Zipf}, Floor: floor,
		Warmup: t.Warmup, Duration: t.Duration, Seed: uint64(round),
	}
}
