package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/bench/precise"
	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
)

// WatchPlan is what watch fan-out is measured with.
type WatchPlan struct {
	Beside
	Works []WatchWork
	// Audit adds streams that are wrong on purpose, at the first server.
	Audit bool
}

// WatchWork is one writer and its watchers.
type WatchWork struct {
	Watchers int
	Streams  int
	Rate     float64 // puts a second, 0 for a closed loop
}

func (w *WatchWork) group(size int) report.Group {
	loop := "closed"
	if w.Rate > 0 {
		loop = fmt.Sprintf("open-%v/s", w.Rate)
	}
	return report.Group{
		{Key: "watchers", Value: fmt.Sprint(w.Watchers)},
		{Key: "streams", Value: fmt.Sprint(w.Streams)},
		{Key: "loop", Value: loop},
		members(size),
	}
}

// watcherTime is what creating a watcher takes, about.
const watcherTime = 100 * time.Microsecond

// Watch plans the measurement of watch fan-out.
func (s *Suite) Watch(p WatchPlan) {
	audited := !p.Audit
	s.beside(report.Watch, &p.Beside, func(servers []*besides, size int) {
		for round := range p.Rounds {
			for _, w := range p.Works {
				name := fmt.Sprintf("watch: members=%d, round %d, %d watchers on %d streams", size, round+1, w.Watchers, w.Streams)
				s.inTurn(servers, round, name, p.Warmup+p.Duration+time.Duration(w.Watchers)*watcherTime, func(ctx context.Context, c *besides) error {
					return s.watch(ctx, &p, c, w, round)
				})
			}
		}
		if !audited {
			s.auditWatch(servers[0])
			audited = true
		}
	})
}

func fanOut(c *besides, w WatchWork) *wire.FanOut {
	f := &wire.FanOut{Leader: c.roles.Leader, Watchers: w.Watchers, Streams: w.Streams, Rate: w.Rate}
	// The first stream is at the leader, the others are everywhere.
	f.Endpoints = append(f.Endpoints, c.roles.Leader)
	for _, e := range c.Endpoints {
		if e != c.roles.Leader {
			f.Endpoints = append(f.Endpoints, e)
		}
	}
	return f
}

func (s *Suite) watch(ctx context.Context, p *WatchPlan, c *besides, w WatchWork, round int) (err error) {
	f := fanOut(c, w)
	pacer, err := precise.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pacer.Close()) }()
	f.Sleep = pacer.Sleep
	res, err := f.Measure(ctx, p.times())
	if err != nil {
		return err
	}
	where := report.Measurement{
		Layer: report.Watch, Arm: c.Name, Round: round, Elapsed: res.Elapsed, Sample: 1, Group: w.group(len(c.Endpoints)),
	}
	s.Report.AddTally(where, "put", res.Put)
	where.Stale = res.Disorder.Sum()
	s.Report.AddTally(where, "event", res.Event)
	if d := res.Disorder; d.Sum() > 0 {
		s.Report.Note("watch %s, %s: %d events missing, %d duplicates, %d out of order.", where.Group, c.Name, d.Missing, d.Duplicate, d.OutOfOrder)
	}
	return nil
}

// auditWatch runs what is wrong on purpose.
func (s *Suite) auditWatch(c *besides) {
	const takes = 500 * time.Millisecond
	for _, wrong := range wire.Wrongs {
		s.add("audit: "+string(wrong), takes, func(ctx context.Context) error {
			f := fanOut(c, WatchWork{Watchers: 8, Streams: 1})
			f.Wrong = wrong
			res, err := f.Measure(ctx, wire.Times{Duration: takes})
			if err != nil {
				return err
			}
			s.Report.Audits = append(s.Report.Audits, report.Audit{
				Arm: string(wrong), Reads: res.Event.Done, Stale: res.Disorder.Sum(), Caught: res.Disorder.Sum() > 0,
			})
			return nil
		})
	}
}
