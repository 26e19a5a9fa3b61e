package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leaderlease/go/bench/internal/inproc"
	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

const startTime = time.Second // what starting a cluster takes, about

// perTrial is about how long a trial takes in real time.
const perTrial = 3 * time.Millisecond

// Stale plans the partitions in virtual time.
func (s *Suite) Stale(trials int, seed uint64) {
	for _, arm := range []struct {
		name string
		kind leasetest.Kind
	}{{"raft ReadOnlyLeaseBased", leasetest.Stock}, {"leaderlease", leasetest.Library}} {
		s.add("stale: "+arm.name, time.Duration(trials)*perTrial, func(context.Context) error {
			t := cutLeadersOff(arm.kind, trials, seed)
			s.Report.Staleness = append(s.Report.Staleness, report.Staleness{
				Arm: arm.name, Trials: t.Trials, StaleRuns: t.StaleTrials, Reads: t.Reads, StaleReads: t.Stale, Window: t.meanWindow(),
			})
			return nil
		})
	}
}

// ClusterPlan is what the part cluster measures: each RTT with each Work and each arm.
type ClusterPlan struct {
	Timing
	Keys  int
	RTTs  []time.Duration
	Works []Work
	// Mixed are measured at MixedRTT only.
	Mixed    []Work
	MixedRTT time.Duration
	// Audit adds the arms that are wrong on purpose.
	Audit bool
}

// clusterArm is a way to read, at a member.
type clusterArm struct {
	name     string
	mode     kvnode.ReadMode
	follower bool
}

// clusterArms are the arms in one process. The others are compared with the first.
var clusterArms = []clusterArm{
	{"read-index", kvnode.ReadIndex, false},
	{"lease", kvnode.ReadLease, false},
	{"log", kvnode.ReadLog, false},
	{"serializable", kvnode.ReadSerializable, false},
	{"follower", kvnode.ReadLease, true},
}

// inCluster is a running cluster of this process.
type inCluster struct {
	*inproc.Cluster
	floor *load.Floor
}

func (c *inCluster) reader(ctx context.Context, a clusterArm) (load.Target, error) {
	leader, err := leaderOf(ctx, c)
	if err != nil {
		return nil, err
	}
	if a.follower {
		leader = (leader + 1) % inproc.Members
	}
	return load.Each{Shared: c.Reader(leader, a.mode)}, nil
}

// leaderOf returns the number of the member that leads. On a busy machine there may be
// an election at any time.
func leaderOf(ctx context.Context, c *inCluster) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		if i := c.Leader(); i >= 0 {
			return i, nil
		}
		if err := durations.Sleep(ctx, leaderPause); err != nil {
			return -1, fmt.Errorf("no member leads: %w", err)
		}
	}
}

// leaderTimeout is how long a cluster may be without a leader. leaderOf looks for one
// every leaderPause.
const (
	leaderTimeout = 30 * time.Second
	leaderPause   = 10 * time.Millisecond
)

// Cluster plans the reads in one process.
func (s *Suite) Cluster(p ClusterPlan) {
	c := &inCluster{floor: load.NewFloor(p.Keys)}
	s.add("cluster: start", startTime, func(ctx context.Context) error {
		dir, err := os.MkdirTemp("", "leasebench")
		if err != nil {
			return err
		}
		s.later(func() error { return os.RemoveAll(dir) })
		if c.Cluster, err = inproc.Start(ctx, inproc.Options{Dir: filepath.Join(dir, "cluster"), Keys: p.Keys}); err != nil {
			return err
		}
		s.later(c.Close)
		return nil
	})
	for round := range p.Rounds {
		for _, rtt := range p.RTTs {
			for _, w := range p.Works {
				s.clusterCell(c, &p, rtt, w, round)
			}
		}
		for _, w := range p.Mixed {
			s.clusterCell(c, &p, p.MixedRTT, w, round)
		}
	}
	if p.Audit {
		s.audit(c, p)
	}
	s.stop("cluster")
}

// slowReads is the least number of round trips in a measurement.
const slowReads = 8

func (s *Suite) clusterCell(c *inCluster, p *ClusterPlan, rtt time.Duration, w Work, round int) {
	t := p.Timing
	t.Duration = max(t.Duration, slowReads*rtt)
	t.Warmup = max(t.Warmup, rtt)
	for _, i := range rotated(len(clusterArms), round) {
		arm := clusterArms[i]
		name := fmt.Sprintf("cluster: round %d, rtt %v, %d clients, %s", round+1, rtt, w.Clients, arm.name)
		s.add(name, t.Warmup+t.Duration, func(ctx context.Context) error {
			c.SetRTT(rtt)
			target, err := c.reader(ctx, arm)
			if err != nil {
				return err
			}
			res, err := w.run(ctx, target, p.Keys, c.floor, t, round)
			if err != nil {
				return err
			}
			s.Report.AddLoad(report.Figure{Part: report.Cluster, Row: fmt.Sprintf("rtt=%v/%s", rtt, w.conditions()), Arm: arm.name, Round: round}, res)
			return nil
		})
	}
}

// audit runs the arms that are wrong on purpose, under conditions in which the version
// floor must catch them.
func (s *Suite) audit(c *inCluster, p ClusterPlan) {
	const (
		rtt   = 2 * time.Millisecond
		takes = 500 * time.Millisecond
		// audits is the number of attempts. Where writes are slow, one attempt may have too
		// few of them for a read to be stale.
		audits = 20
	)
	for _, wrong := range inproc.Wrongs {
		s.add("audit: "+string(wrong), takes, func(ctx context.Context) error {
			c.SetRTT(rtt)
			w, a := Work{Clients: 16, WritePercent: 20}, report.Audit{Arm: string(wrong)}
			for try := 0; try < audits && !a.Caught; try++ {
				leader, err := leaderOf(ctx, c)
				if err != nil {
					return err
				}
				target := load.Each{Shared: c.WrongReader((leader+1)%inproc.Members, leader, wrong)}
				res, err := w.run(ctx, target, min(p.Keys, 8), load.NewFloor(p.Keys), Timing{Duration: takes}, 0)
				if err != nil {
					return err
				}
				a.Reads, a.Stale, a.Caught = a.Reads+res.Read.Done, res.AuditedStale, res.AuditedStale > 0
			}
			s.Report.Audits = append(s.Report.Audits, a)
			return nil
		})
	}
}
