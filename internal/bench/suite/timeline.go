package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/leaderlease/go/internal/bench/load"
	"github.com/leaderlease/go/internal/bench/precise"
	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/procs"
)

// TimelinePlan is what happens to leaders.
type TimelinePlan struct {
	Rounds int
	Faults []string
	// Tick is the heartbeat interval of the arms in this process, a tenth of the election
	// timeout; ProcessTick is that of Programs, 0 for what each has by default.
	Tick, ProcessTick time.Duration
	// Before and After are how long the load runs around the fault.
	Before, After time.Duration
	// Rate is that of all operations, a fifth of which are writes.
	Rate float64
	// Programs adds clusters of processes, which cannot be cut off.
	Programs []procs.Program
}

// Faults are what can happen to a leader.
var Faults = []string{"kill", "pause", "cut", "transfer"}

const (
	failoverKeys    = 16
	failoverClients = 128
	failoverWrites  = 20
	failoverBucket  = 10 * time.Millisecond
	failoverTimeout = 100 * time.Millisecond
)

// Timeline plans each fault for each arm, in a fresh cluster each time.
func (s *Suite) Timeline(p TimelinePlan) error {
	for _, f := range p.Faults {
		if err := inflict(nothing{}, f, 0); err != nil {
			return err
		}
	}
	subjects := append(bareSubjects(), nodeSubjects()...)
	for _, program := range p.Programs {
		subjects = append(subjects, processSubjects(program, p.ProcessTick)...)
	}
	for round := range p.Rounds {
		for _, fault := range p.Faults {
			for _, i := range rotated(len(subjects), round) {
				sub := subjects[i]
				if sub.cannot == fault {
					continue
				}
				name := fmt.Sprintf("timeline: round %d, %s, %s %s", round+1, fault, sub.system, sub.arm)
				s.add(name, startTime+p.Before+p.After, func(ctx context.Context) error {
					return s.timeline(ctx, &p, &sub, fault, round)
				})
			}
		}
	}
	return nil
}

func (s *Suite) timeline(ctx context.Context, p *TimelinePlan, sub *subject, fault string, round int) (err error) {
	dir, err := os.MkdirTemp("", "leasebench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, members, err := sub.start(ctx, p.Tick, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	leader, err := leaderOf(ctx, c)
	if err != nil {
		return err
	}
	pacer, err := precise.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pacer.Close()) }()
	line := load.NewTimeline(failoverBucket, p.Before+p.After)
	var at time.Duration
	faulted := make(chan error, 1)
	timer := time.AfterFunc(p.Before, func() {
		at = time.Since(line.Start())
		faulted <- inflict(c, fault, leader)
	})
	defer timer.Stop()
	res, err := load.Load{
		Target: roaming{members, leader}, Clients: failoverClients, Keys: load.Keys{Count: failoverKeys}, WritePercent: failoverWrites,
		Rate: p.Rate, Sleep: pacer.Sleep, Duration: p.Before + p.After, Timeout: failoverTimeout, Grace: time.Second, Timeline: line, Seed: uint64(round),
	}.Run(ctx)
	if err != nil {
		return err
	}
	if err := <-faulted; err != nil {
		return fmt.Errorf("%s: %w", fault, err)
	}
	s.Report.Failovers = append(s.Report.Failovers, failoverOf(sub, fault, round, line, at, res))
	return nil
}

func failoverOf(sub *subject, fault string, round int, line *load.Timeline, at time.Duration, res *load.Result) report.Failover {
	f := report.Failover{
		Layer: sub.layer, System: sub.system, Arm: sub.arm, Fault: fault, Round: round,
		Bucket: line.Bucket, FaultAt: at, Reads: line.Counts(load.Read), Writes: line.Counts(load.Write),
		ReadOutage: line.Unavailable(load.Read, at), WriteOutage: line.Unavailable(load.Write, at),
		Stale: res.AuditedStale, Failed: res.Read.Failed + res.Write.Failed, Errors: res.Read.Errors,
	}
	for text, n := range res.Write.Errors {
		f.Errors[text] += n
	}
	return f
}
