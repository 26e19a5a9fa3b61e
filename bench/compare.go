package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderlease/go/bench/internal/inproc"
	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/servers"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/client"
)

// Server is a server to measure over the wire: a running one, or a program to
// start three members of.
type Server struct {
	Name      string
	Endpoints []string
	Program   *testcluster.Program
	// Flags are additional flags of each member.
	Flags   []string
	cluster *testcluster.Cluster // of members that the suite has started
}

// ComparePlan says how servers are compared, over their client URLs.
type ComparePlan struct {
	Timing
	Keys  int
	Works []Work
	// Servers are measured in alternation. All arms are compared with the first arm
	// of the first server.
	Servers []Server
}

// Via says which members a client knows, and to which of them it sends.
type Via int

// The ways. AllInTurn is the default of clientv3. AllForLeader has the options of
// kvnode/client, and ByStream has kvnode/fastkv in addition.
const (
	Leader Via = iota
	Follower
	AllInTurn
	AllForLeader
	ByStream
)

// wireArm is a way to read from a server.
type wireArm struct {
	name   string
	server string
	mode   servers.Mode
	via    Via
	// path is the path in the trailers of nearly all reads: PathUnknown for servers
	// without trailers, and where reads take several paths.
	path load.Path
}

// wireArms returns the arms that all servers have, and kvnode's own.
func wireArms(all []Server) (arms []wireArm) {
	for _, s := range all {
		if s.Name == "kvnode" {
			arms = append(arms,
				wireArm{"kvnode-read-index", s.Name, servers.ByReadIndex, Leader, load.PathReadIndex},
				wireArm{"kvnode-lease", s.Name, servers.ByLease, Leader, load.PathLease},
				wireArm{"kvnode-log", s.Name, servers.ByLog, Leader, load.PathLog},
				wireArm{"kvnode-serializable", s.Name, servers.Serializable, Leader, load.PathSerializable},
				wireArm{"kvnode-follower", s.Name, servers.ByLease, Follower, load.PathForwarded},
				wireArm{"kvnode-three-endpoints", s.Name, servers.ByLease, AllInTurn, load.PathUnknown},
				wireArm{"kvnode-three-endpoints-client", s.Name, servers.ByLease, AllForLeader, load.PathLease},
				wireArm{"kvnode-fastkv", s.Name, servers.Plain, ByStream, load.PathUnknown},
			)
			continue
		}
		arms = append(arms,
			wireArm{s.Name + "-linearizable", s.Name, servers.Auto, Leader, load.PathUnknown},
			wireArm{s.Name + "-serializable", s.Name, servers.Serializable, Leader, load.PathUnknown},
			wireArm{s.Name + "-three-endpoints", s.Name, servers.Auto, AllInTurn, load.PathUnknown},
		)
	}
	return arms
}

// armsFor keeps one arm for each server and each way to it if w reads nothing.
func armsFor(all []wireArm, w Work) (arms []wireArm) {
	if w.WritePercent < 100 {
		return all
	}
	names := map[Via]string{Leader: "-put", AllInTurn: "-put-three-endpoints", AllForLeader: "-put-three-endpoints-client", ByStream: "-put-fastkv"}
	seen := make(map[string]bool)
	for _, a := range all {
		if name := a.server + names[a.via]; a.via != Follower && !seen[name] {
			seen[name] = true
			arms = append(arms, wireArm{name: name, server: a.server, mode: a.mode, via: a.via})
		}
	}
	return arms
}

// valueLen is the length of all values, as in package inproc.
const valueLen = 128

const (
	// findTimeout is how long a cluster may take to start and to agree on a leader.
	findTimeout = 30 * time.Second
	// fillTimeout is how long writing all keys may take.
	fillTimeout = 10 * time.Second
)

// connected is a server that runs, and the connections to it.
type connected struct {
	Server
	conns map[Via]*servers.Conns
	floor *load.Floor
}

// Compare plans the reads and writes of all servers, over their client URLs.
func (s *Suite) Compare(p ComparePlan) {
	all := make(map[string]*connected)
	for _, srv := range p.Servers {
		c := &connected{Server: srv, conns: make(map[Via]*servers.Conns), floor: load.NewFloor(p.Keys)}
		all[srv.Name] = c
		s.add("compare: start "+srv.Name, startTime, func(ctx context.Context) error { return s.connect(ctx, c, &p) })
	}
	for round := range p.Rounds {
		for _, w := range p.Works {
			arms := armsFor(wireArms(p.Servers), w)
			for _, i := range rotated(len(arms), round) {
				arm := arms[i]
				name := fmt.Sprintf("compare: round %d, %d clients, %d%% writes, %s", round+1, w.Clients, w.WritePercent, arm.name)
				s.add(name, p.Warmup+p.Duration, func(ctx context.Context) error {
					return s.compare(ctx, &p, all[arm.server], &arm, &w, round)
				})
			}
		}
	}
	s.add("compare: find the leader again", 0, func(ctx context.Context) error {
		for _, srv := range p.Servers {
			c := all[srv.Name]
			s.stillLeads(ctx, report.Compare, &c.Server, c.conns[Leader].Endpoints[0])
		}
		return nil
	})
	s.stop("compare")
}

// stillLeads adds a note if the leader of srv has changed during the run.
func (s *Suite) stillLeads(ctx context.Context, part string, srv *Server, leader string) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	roles, err := servers.Find(ctx, nil, srv.Endpoints)
	switch {
	case err != nil:
		s.Report.Note("%s, %s: at the end no leader was found: %v.", part, srv.Name, err)
	case roles.Leader != leader:
		s.Report.Note("%s, %s: leadership moved during the run, so what should have been measured at the leader was not throughout. Repeat it.", part, srv.Name)
	}
}

func (s *Suite) connect(ctx context.Context, c *connected, p *ComparePlan) error {
	roles, err := s.start(ctx, &c.Server)
	if err != nil {
		return err
	}
	most := 0
	for _, w := range p.Works {
		most = max(most, w.Clients)
	}
	ways := map[Via][]string{Leader: {roles.Leader}, AllInTurn: c.Endpoints, AllForLeader: c.Endpoints, ByStream: c.Endpoints}
	if roles.Follower != "" {
		ways[Follower] = []string{roles.Follower}
	}
	for via, endpoints := range ways {
		var opts []grpc.DialOption
		if via == AllForLeader || via == ByStream {
			opts = client.DialOptions()
		}
		conns, err := servers.Dial(endpoints, most, valueLen, opts...)
		if err != nil {
			return err
		}
		s.later(conns.Close)
		if via == ByStream {
			if err := conns.ByStreams(); err != nil {
				return err
			}
		}
		c.conns[via] = conns
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	fill := servers.Fill{Endpoint: roles.Leader, Keys: p.Keys, Versions: 1, ValueLen: valueLen, Clients: 1, PerTxn: 100}
	_, err = fill.Run(ctx)
	return err
}

// start starts the members of srv, unless they run already, and finds the leader.
func (s *Suite) start(ctx context.Context, srv *Server) (*servers.Roles, error) {
	if srv.Program != nil {
		if err := s.startMembers(srv); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	roles, err := servers.Find(ctx, nil, srv.Endpoints)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", srv.Name, err, srv.logTail())
	}
	s.Report.Note("%s: %d members, version %s.", srv.Name, len(srv.Endpoints), roles.Version)
	return roles, nil
}

func (s *Suite) startMembers(srv *Server) error {
	dir, err := os.MkdirTemp("", "leasebench")
	if err != nil {
		return err
	}
	s.later(func() error { return os.RemoveAll(dir) })
	srv.cluster, err = testcluster.New(testcluster.Config{Program: *srv.Program, Dir: dir, Size: inproc.Members, Token: "leasebench", Flags: srv.Flags})
	if err != nil {
		return err
	}
	s.later(srv.cluster.Kill)
	if err := srv.cluster.Start(); err != nil {
		return fmt.Errorf("start %s: %w", srv.Name, err)
	}
	srv.Endpoints = srv.cluster.Endpoints()
	return nil
}

// logTail returns the ends of the logs of the members that the suite has started.
func (srv *Server) logTail() string {
	if srv.cluster == nil {
		return ""
	}
	var all []string
	for _, m := range srv.cluster.Members() {
		all = append(all, m.LogTail())
	}
	return strings.Join(all, "\n")
}

func (s *Suite) compare(ctx context.Context, p *ComparePlan, c *connected, arm *wireArm, w *Work, round int) error {
	conns := c.conns[arm.via]
	if conns == nil {
		return nil // a cluster of one has no follower
	}
	res, err := w.run(ctx, conns.Reader(arm.mode), p.Keys, c.floor, p.Timing, round)
	if err != nil {
		return err
	}
	s.Report.AddLoad(report.Figure{Part: report.Compare, Row: w.conditions(), Arm: arm.name, Round: round}, res)
	if took := res.Read.Paths[arm.path]; arm.path != load.PathUnknown && took < res.Read.Done*9/10 {
		s.Report.Note("Only %d of %d reads of arm %s (%s) were served by path %s: it measured something else too.",
			took, res.Read.Done, arm.name, w.conditions(), arm.path)
	}
	return nil
}
