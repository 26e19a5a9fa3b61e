package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/bench"
	"github.com/leaderlease/go/internal/bench/inproc"
	"github.com/leaderlease/go/internal/bench/load"
	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/pause"
	"github.com/leaderlease/go/internal/procs"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/transport/memlink"
)

// system is a running cluster that things can happen to.
type system interface {
	Kill(i int) error
	Pause(i int) error
	Cut(i int) error
	Transfer(i int) error
	Leader() int
	Close() error
}

// leaderOf returns the number of the member that leads. On a busy machine there may be
// an election at any time.
func leaderOf(ctx context.Context, c interface{ Leader() int }) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		if i := c.Leader(); i >= 0 {
			return i, nil
		}
		if err := pause.For(ctx, leaderPause); err != nil {
			return -1, fmt.Errorf("nobody leads: %w", err)
		}
	}
}

// leaderTimeout is how long a cluster may be without leader, leaderPause how often it
// is asked.
const (
	leaderTimeout = 30 * time.Second
	leaderPause   = 10 * time.Millisecond
)

func inflict(c system, fault string, leader int) error {
	switch fault {
	case "kill":
		return c.Kill(leader)
	case "pause":
		return c.Pause(leader)
	case "cut":
		return c.Cut(leader)
	case "transfer":
		return c.Transfer(leader)
	default:
		return fmt.Errorf("fault %q must be one of %v", fault, Faults)
	}
}

// subject is an arm: it starts a cluster with a client for each member.
type subject struct {
	layer, system, arm string
	start              func(ctx context.Context, tick time.Duration, dir string) (system, []load.Target, error)
	cannot             string // a fault
}

// roaming gives each client one connection to each member, of which it uses the
// leader's first.
type roaming struct {
	members []load.Target
	first   int
}

// Client implements load.Target.
func (r roaming) Client(i int) load.Client {
	var all []load.Client
	for _, m := range r.members {
		all = append(all, m.Client(i))
	}
	return load.Roam{Members: all, First: r.first}.Client(i)
}

// bareSubjects are raft with nothing around it, and the same with leaderlease in
// front. They differ in the mode alone.
func bareSubjects() (subs []subject) {
	for _, mode := range []bench.Mode{bench.ReadIndex, bench.Lease, bench.RaftLease} {
		arm := string(mode)
		if mode == bench.ReadIndex {
			arm = "read-index"
		}
		subs = append(subs, subject{report.Cluster, "rawnode", arm, func(ctx context.Context, tick time.Duration, _ string) (system, []load.Target, error) {
			c, err := bench.Start(ctx, bench.Options{Mode: mode, Tick: tick, Network: memlink.New()})
			if err != nil {
				return nil, nil, err
			}
			var members []load.Target
			for i := range bench.Voters {
				members = append(members, load.Each{Shared: c.Node(i)})
			}
			return c, members, nil
		}, ""})
	}
	return subs
}

// nodeSubjects are kvnode with its lease, and without.
func nodeSubjects() (subs []subject) {
	for _, arm := range []struct {
		name    string
		disable bool
	}{{"lease", false}, {"no-lease", true}} {
		subs = append(subs, subject{report.Cluster, "kvnode", arm.name, func(ctx context.Context, tick time.Duration, dir string) (system, []load.Target, error) {
			c, err := inproc.Start(ctx, inproc.Options{Dir: dir, Keys: failoverKeys, Tick: tick, DisableLease: arm.disable})
			if err != nil {
				return nil, nil, err
			}
			var members []load.Target
			for i := range inproc.Members {
				members = append(members, load.Each{Shared: c.Reader(i, kvnode.ReadAuto)})
			}
			return c, members, nil
		}, ""})
	}
	return subs
}

// processSubjects are processes, under their own default mode.
func processSubjects(program procs.Program, tick time.Duration) []subject {
	return []subject{{report.Wire, program.Name, "default", func(ctx context.Context, _ time.Duration, dir string) (system, []load.Target, error) {
		c, err := wire.StartCluster(ctx, wire.ClusterOptions{Program: program, Dir: dir, Size: inproc.Members, Tick: tick})
		if err != nil {
			return nil, nil, err
		}
		sys := &processes{Cluster: c}
		var members []load.Target
		for i, e := range c.Endpoints {
			conns, err := wire.Dial([]string{e}, failoverClients, wire.Keys{Count: failoverKeys, ValueLen: valueLen})
			if err != nil {
				return nil, nil, errors.Join(err, sys.Close())
			}
			sys.conns = append(sys.conns, conns)
			members = append(members, conns.Reader(wire.Auto))
			if i == 0 {
				err = conns.Fill(ctx)
			}
			if err != nil {
				return nil, nil, errors.Join(err, sys.Close())
			}
		}
		return sys, members, nil
	}, "cut"}}
}

// processes are a cluster and the connections to it.
type processes struct {
	*wire.Cluster
	conns []*wire.Conns
}

// Close closes both.
func (p *processes) Close() error {
	return errors.Join(kvclient.Close(p.conns), p.Cluster.Close())
}

// nothing is a system that nothing happens to.
type nothing struct{}

func (nothing) Kill(int) error     { return nil }
func (nothing) Pause(int) error    { return nil }
func (nothing) Cut(int) error      { return nil }
func (nothing) Transfer(int) error { return nil }
func (nothing) Leader() int        { return 0 }
func (nothing) Close() error       { return nil }
