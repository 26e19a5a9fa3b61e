package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
	"github.com/leaderlease/go/internal/testcluster"
)

// defaultOut is a directory that git ignores. The text of a run to keep goes to
// bench/results.
const defaultOut = "bench/out"

func newAll(c *common) *cobra.Command {
	srv := &serverFlags{}
	cmd := &cobra.Command{
		Use: "all", Short: "every part but size, one report; with --quick in about a minute", Long: allLong, Args: cobra.NoArgs,
		Example: "  leasebench all --quick\n  leasebench all --start etcd=./etcd",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("out") {
				c.out = defaultOut
			}
			s := bench.New()
			t, err := c.timing(cmd, defaultTiming(), quickTiming())
			if err != nil {
				return err
			}
			if err := planAll(cmd.Context(), s, t, srv, c.quick); err != nil {
				return err
			}
			return c.finish(cmd, s)
		},
	}
	srv.register(cmd)
	return cmd
}

// planAll plans everything with the defaults of the parts.
func planAll(ctx context.Context, s *bench.Suite, t bench.Timing, srv *serverFlags, quick bool) error {
	servers, err := srv.servers()
	if err != nil {
		return err
	}
	trials := 500
	died := bench.FailoverPlan{Rounds: t.Rounds, Members: 3}
	if _, err := died.SetDeaths(ctx, []string{"kill", "panic", "term"}); err != nil {
		return err
	}
	if quick {
		trials = 100
		died.Rounds = quickFailoverRounds
	}
	s.Stale(trials, 1)
	cluster := clusterFlags{clusterDefaults, defaultRTTs()}
	if err := cluster.add(s, t, quick); err != nil {
		return err
	}

	for _, srv := range servers {
		if srv.Program != nil {
			died.Servers = append(died.Servers, srv)
		}
	}
	s.Failover(died)
	if len(servers) < 2 {
		s.Report.Note("No other server was compared with: give all a --start.")
	}
	compare := compareFlags{compareDefaults, *srv}
	return compare.add(s, t, quick)
}

// defaultTiming and quickTiming are how long arms are measured.
func defaultTiming() bench.Timing {
	return bench.Timing{Rounds: 5, Warmup: 200 * time.Millisecond, Duration: time.Second}
}

func quickTiming() bench.Timing {
	return bench.Timing{Rounds: 1, Warmup: 50 * time.Millisecond, Duration: 250 * time.Millisecond}
}

// sizeTiming is how long servers with much data rest and are measured.
func sizeTiming(quick bool) bench.Timing {
	if quick {
		return bench.Timing{Rounds: 1, Warmup: 2 * time.Second, Duration: 3 * time.Second}
	}
	return bench.Timing{Rounds: 1, Warmup: 15 * time.Second, Duration: 15 * time.Second}
}

// kvnodeName is the name of the server with kvnode's read modes.
const kvnodeName = "kvnode"

// ownMember is this binary as a kvnode server.
func ownMember() (testcluster.Program, error) {
	self, err := os.Executable()
	if err != nil {
		return testcluster.Program{}, fmt.Errorf("find this program: %w", err)
	}
	return testcluster.Program{Name: kvnodeName, Path: self, Args: []string{memberCommand}}, nil
}

// parsePeer takes NAME=ENDPOINT,ENDPOINT.
func parsePeer(s string) (bench.Server, error) {
	name, endpoints, err := cutName("peer", s, "NAME=HOST:PORT,HOST:PORT")
	for i, e := range endpoints {
		endpoints[i] = strings.TrimPrefix(e, "http://")
	}
	return bench.Server{Name: name, Endpoints: endpoints}, err
}

// parseStart takes NAME=BINARY,ARG.
func parseStart(s string) (bench.Server, error) {
	name, parts, err := cutName("program", s, "NAME=BINARY,ARGUMENT")
	if err != nil {
		return bench.Server{}, err
	}
	return bench.Server{Name: name, Program: &testcluster.Program{Name: name, Path: parts[0], Args: parts[1:]}}, nil
}

func cutName(what, s, form string) (name string, parts []string, err error) {
	name, list, ok := strings.Cut(s, "=")
	if !ok || name == "" || list == "" || strings.ContainsAny(name, "/ ") {
		return "", nil, fmt.Errorf("%s %q must be %s", what, s, form)
	}
	return name, strings.Split(list, ","), nil
}

// serverFlags say which servers are measured.
type serverFlags struct{ peers, starts []string }

func (f *serverFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.peers, "peer", nil, "a running `NAME=ENDPOINTS`, all members of it; repeat for more")
	f.registerStart(cmd)
}

// registerStart is for commands that must start servers themselves.
func (f *serverFlags) registerStart(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.starts, "start", nil, "a `NAME=BINARY` that takes etcd's flags and is started as a cluster, of three members unless --members says otherwise; arguments before the flags follow commas; repeat for more")
}

// servers returns kvnode, which is this binary unless the flags name another one, and the
// servers of the flags.
func (f *serverFlags) servers() ([]bench.Server, error) {
	var all []bench.Server
	names := make(map[string]bool)
	for i, p := range slices.Concat(f.peers, f.starts) {
		parse := parsePeer
		if i >= len(f.peers) {
			parse = parseStart
		}
		s, err := parse(p)
		if err != nil {
			return nil, err
		}
		if names[s.Name] {
			return nil, fmt.Errorf("server %q is named twice", s.Name)
		}
		names[s.Name] = true
		all = append(all, s)
	}
	if names[kvnodeName] {
		return all, nil
	}
	program, err := ownMember()
	if err != nil {
		return nil, err
	}
	return append([]bench.Server{{Name: kvnodeName, Program: &program}}, all...), nil
}
