package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

// clusterFlags are the conditions of the part cluster.
type clusterFlags struct {
	loadFlags
	rtts []time.Duration
}

// loadFlags are the conditions of a load.
type loadFlags struct {
	clients []int
	keys    int
	rate    float64
}

// The defaults of the parts.
var (
	clusterDefaults = loadFlags{[]int{1, 16, 64, 256, 1024}, 10_000, 2000}
	compareDefaults = loadFlags{[]int{1, 16, 64, 256}, 1000, 1000}
)

func (f *loadFlags) register(cmd *cobra.Command, defaults loadFlags) {
	cmd.Flags().IntSliceVar(&f.clients, "clients", defaults.clients, "numbers of clients")
	cmd.Flags().IntVar(&f.keys, "keys", defaults.keys, "number of keys")
	cmd.Flags().Float64Var(&f.rate, "rate", defaults.rate, "operations per second of the open loop")
}

// works returns the numbers of clients, and a load of reads for each number.
func (f *loadFlags) works(quick bool) (clients []int, works []bench.Work, err error) {
	clients = f.clients
	if quick {
		clients = []int{1, 64}
	}
	if f.keys < 1 || f.rate <= 0 || f.rate > maxRate {
		return nil, nil, fmt.Errorf("keys %d must be at least 1 and rate %v in (0, %v]", f.keys, f.rate, maxRate)
	}
	for _, n := range clients {
		if n < 1 || n > maxClients {
			return nil, nil, fmt.Errorf("number of clients %d must be in [1, %d]", n, maxClients)
		}
		works = append(works, bench.Work{Clients: n})
	}
	return clients, works, nil
}

func defaultRTTs() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{0, ms / 5, ms, 5 * ms, 20 * ms, 80 * ms}
}

func newCluster(c *common) *cobra.Command {
	f := &clusterFlags{}
	cmd := &cobra.Command{Use: "cluster", Short: "the whole linearizable read, in process, against the peers' round trip"}
	cmd.Flags().DurationSliceVar(&f.rtts, "rtt", defaultRTTs(), "round-trip times between peers")
	f.register(cmd, clusterDefaults)
	return c.part(cmd, "clients", f.add)
}

// add plans the reads in one process.
func (f *clusterFlags) add(s *bench.Suite, t bench.Timing, quick bool) error {
	_, works, err := f.works(quick)
	if err != nil {
		return err
	}
	for _, rtt := range f.rtts {
		if rtt < 0 || rtt > maxRTT {
			return fmt.Errorf("rtt %v must be in [0, %v]: members would not hear each other in time", rtt, maxRTT)
		}
	}
	s.Cluster(bench.ClusterPlan{
		Timing: t, Keys: f.keys, RTTs: f.rtts, MixedRTT: time.Millisecond, Audit: true, Works: works, Mixed: mixed(64, f.rate),
	})
	return nil
}

// maxRTT leaves room for a quorum round within a lease.
const maxRTT = 300 * time.Millisecond

// maxClients and maxRate are more than one machine can serve.
const (
	maxClients = 10_000
	maxRate    = 1e6
)

// zipf is YCSB's skew, as near as rand.Zipf comes.
const zipf = 1.1

// mixed are works with writes, with hot keys, and with a fixed arrival rate.
func mixed(clients int, rate float64) []bench.Work {
	return []bench.Work{
		{Clients: clients, WritePercent: 5, Zipf: zipf},
		{Clients: clients, WritePercent: 50, Zipf: zipf},
		{Clients: clients, WritePercent: 5, Rate: rate},
	}
}

func newStale(c *common) *cobra.Command {
	var trials int
	var seed uint64
	cmd := &cobra.Command{
		Use: "stale", Short: "stale reads of leaders that were cut off: raft's ReadOnlyLeaseBased against leaderlease", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if trials < 1 {
				return fmt.Errorf("trials %d must be at least 1", trials)
			}
			s := bench.New()
			s.Stale(trials, seed)
			return c.finish(cmd, s)
		},
	}
	cmd.Flags().IntVar(&trials, "trials", 500, "how often to cut a leader off")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed of when it happens")
	return cmd
}

// failoverFlags select the ways in which leaders die, and the clusters.
type failoverFlags struct {
	serverFlags
	deaths  []string
	members int
	tls     bool
	// supervise adds kvnode with --supervise beside kvnode without it.
	supervise bool
}

const (
	failoverRounds      = 20
	quickFailoverRounds = 2
)

func newFailover(c *common) *cobra.Command {
	f := &failoverFlags{}
	cmd := &cobra.Command{
		Use: "failover", Short: "how long reads and writes get no answer when the leader dies, in each way, side by side", Args: cobra.NoArgs,
		Long: failoverLong, Example: "  leasebench failover --quick --start etcd=./etcd\n  leasebench failover --death kill,two --members 5 --tls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.members != 3 && f.members != 5 {
				return fmt.Errorf("members %d must be 3 or 5", f.members)
			}
			p := bench.FailoverPlan{Members: f.members, TLS: f.tls}
			if done, err := p.SetDeaths(cmd.Context(), f.deaths); done || err != nil {
				return err
			}
			normal, quick := defaultTiming(), quickTiming()
			normal.Rounds, quick.Rounds = failoverRounds, quickFailoverRounds
			return c.runTimed(cmd, normal, quick, func(s *bench.Suite, t bench.Timing) error {
				p.Rounds = t.Rounds
				return f.add(s, p)
			})
		},
	}
	f.registerStart(cmd)
	cmd.Flags().StringSliceVar(&f.deaths, "death", bench.Deaths(), "how leaders die")
	cmd.Flags().IntVar(&f.members, "members", 3, "size of the clusters, 3 or 5; two of five are always of 5")
	cmd.Flags().BoolVar(&f.supervise, "supervise", false, "measure kvnode with --supervise beside kvnode without it; Linux only")
	cmd.Flags().BoolVar(&f.tls, "tls", false, "TLS for clients and between members, with certificates that they make themselves")
	return cmd
}

func (f *failoverFlags) add(s *bench.Suite, p bench.FailoverPlan) (err error) {
	if p.Servers, err = f.servers(); err != nil {
		return err
	}
	if f.supervise {
		supervised := *p.Servers[0].Program
		supervised.Name, supervised.Args = supervised.Name+"-supervised", append(slices.Clone(supervised.Args), "--supervise")
		supervised.Supervised = true
		p.Servers = slices.Insert(p.Servers, 1, bench.Server{Name: supervised.Name, Program: &supervised})
	}
	if len(f.starts) == 0 {
		p.Servers = append(p.Servers, localEtcd(s)...)
	}
	s.Failover(p)
	return nil
}
