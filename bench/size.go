package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/servers"
	"github.com/leaderlease/go/internal/durations"
)

// SizePlan says how servers with much data are measured. Warmup is how long they rest
// before their memory is read. Duration is how long a client is measured after the start
// of a compaction.
type SizePlan struct {
	Timing
	// Servers are started anew, without data, for each group of parts.
	Servers []Server
	// Keys is the number of keys of the largest data set. A tenth of them gets ten
	// versions each.
	Keys int
}

// streams is the number of streams of watches, on conns connections.
func (p *SizePlan) streams() (streams, conns int) {
	streams = max(p.Keys/100, 1)
	return streams, min(streams, 16)
}

const (
	littleKeys   = 2000
	sizeVersions = 10
	sizeValueLen = 256
	sizeClients  = 16
	sizePerTxn   = 100
	// sizeQuota is more than the largest data set needs in either server.
	sizeQuota = 8 << 30
	// littleTime, putTime, scanTime and streamTime are about how long one takes.
	littleTime = time.Millisecond
	putTime    = 40 * time.Microsecond
	scanTime   = 200 * time.Millisecond
	streamTime = 200 * time.Microsecond
)

// sized is a server in one round, from its start until it is stopped.
type sized struct {
	Server
	roles *servers.Roles // set by start and restarted
	plan  *SizePlan
	round int
	// revision is the revision of the newest put.
	revision int64
}

// sizePart is one measurement. The server holds the data of the parts before it.
type sizePart struct {
	name  string
	takes time.Duration
	run   func(ctx context.Context, c *sized) error
}

// Size plans the measurement of servers with much data.
func (s *Suite) Size(p SizePlan) {
	streams, _ := p.streams()
	puts := func(n int) time.Duration { return time.Duration(n) * putTime }
	for round := range p.Rounds {
		s.fresh(&p, round, "little data", []sizePart{
			{"little data", littleKeys*littleTime + p.Warmup, s.little},
			{"streams of watches", time.Duration(streams)*streamTime + p.Warmup, s.streams},
		})
		s.fresh(&p, round, "keys", []sizePart{
			{"keys", puts(p.Keys), s.keys},
			{"keys after a rest", p.Warmup, s.rested},
			{"scans", time.Duration(len(servers.Scans())*scans) * scanTime, s.scans},
			{"a new member", puts(p.Keys) / 4, s.joined},
			{"a restart", puts(p.Keys) / 4, s.restarted},
		})
		s.fresh(&p, round, "versions", []sizePart{
			{"versions", puts(p.Keys) + p.Warmup, s.versions},
			{"compaction", p.Duration + p.Warmup, s.compaction},
		})
	}
}

// fresh starts servers without data, and plans parts on them: each part on one server
// after the other, in an order that turns from part to part.
func (s *Suite) fresh(p *SizePlan, round int, name string, parts []sizePart) {
	var all []*sized
	for _, srv := range p.Servers {
		srv.Flags = append(srv.Flags, fmt.Sprintf("--quota-backend-bytes=%d", int64(sizeQuota)))
		c := &sized{Server: srv, plan: p, round: round}
		all = append(all, c)
		s.add(fmt.Sprintf("size: round %d, start %s, %s", round+1, srv.Name, name), startTime, func(ctx context.Context) (err error) {
			c.roles, err = s.start(ctx, &c.Server)
			return err
		})
	}
	for n, part := range parts {
		for _, i := range rotated(len(all), round+n) {
			c := all[i]
			s.add(fmt.Sprintf("size: round %d, %s, %s", round+1, part.name, c.Name), part.takes, func(ctx context.Context) error {
				return part.run(ctx, c)
			})
		}
	}
	s.add("size: find the leader again", 0, func(ctx context.Context) error {
		for _, c := range all {
			s.stillLeads(ctx, report.Size, &c.Server, c.roles.Leader)
		}
		return nil
	})
	s.stop("size")
}

// probed adds the latencies of a probe.
func (s *Suite) probed(c *sized, row string, p [2]*load.Tally) {
	for kind, name := range []string{load.Read: "get", load.Write: "put"} {
		t := p[kind]
		s.figure(c, report.Figure{Row: row, What: "longest stall of a " + name, Value: float64(t.Latency.Max())})
		if t.Supports(0.99) {
			s.figure(c, report.Figure{Row: row, What: name + " p99", Value: float64(t.Quantile(0.99))})
		}
		for text, n := range t.Errors {
			s.Report.Note("size, %s, %s: %d of the probing client's requests failed: %s.", c.Name, row, n, report.WithoutPaths(text))
		}
	}
}

// figure adds one to the report.
func (s *Suite) figure(c *sized, f report.Figure) {
	f.Part, f.Arm, f.Round = report.Size, c.Name, c.round
	s.Report.Figures = append(s.Report.Figures, f)
}

func (s *Suite) restedMemory(ctx context.Context, c *sized, row string) error {
	if err := rest(ctx, c); err != nil {
		return err
	}
	return s.memory(c, row)
}

// memory adds the memory of a member, the mean of all.
func (s *Suite) memory(c *sized, row string) error {
	all, err := memories(c)
	if err != nil {
		return err
	}
	f := report.Figure{Row: row, What: "RSS of a member", Unit: report.Bytes}
	for _, rss := range all {
		f.Value += float64(rss) / float64(len(all))
	}
	s.figure(c, f)
	return nil
}

func memories(c *sized) (all []int64, err error) {
	for _, m := range c.cluster.Members() {
		rss, err := servers.MemoryOf(m.PID())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		all = append(all, rss)
	}
	return all, nil
}

// processors returns the processor time of all members while fn runs.
func processors(c *sized, fn func() error) (time.Duration, error) {
	before, err := cpuOf(c)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := cpuOf(c)
	return after - before, err
}

func cpuOf(c *sized) (sum time.Duration, err error) {
	for _, m := range c.cluster.Members() {
		took, err := servers.CPUOf(m.PID())
		if err != nil {
			return 0, fmt.Errorf("%s: %w", c.Name, err)
		}
		sum += took
	}
	return sum, nil
}

// rest lets the members settle.
func rest(ctx context.Context, c *sized) error { return durations.Sleep(ctx, c.plan.Warmup) }

// count prints a number with commas between thousands.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}

// scans is how often each scan runs.
const scans = 20

// little measures members with little data.
func (s *Suite) little(ctx context.Context, c *sized) error {
	if _, err := s.fill(ctx, c, littleKeys, 1, 1); err != nil {
		return err
	}
	return s.restedMemory(ctx, c, fmt.Sprintf("%s puts", count(littleKeys)))
}

// streams measures open streams of watches without events.
func (s *Suite) streams(ctx context.Context, c *sized) error {
	streams, conns := c.plan.streams()
	row := fmt.Sprintf("%s watch streams on %d connections", count(streams), conns)
	before, err := memories(c)
	if err != nil {
		return err
	}
	open, err := servers.OpenStreams(ctx, c.roles.Leader, streams, conns)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.figure(c, report.Figure{Row: row, What: "time to open all", Missing: report.WithoutPaths(err.Error())})
		return nil
	}
	s.later(open.Close)
	s.figure(c, report.Figure{Row: row, What: "time to open all", Value: float64(open.Took)})
	if err := rest(ctx, c); err != nil {
		return err
	}
	after, err := memories(c)
	if err != nil {
		return err
	}
	grown := int64(0)
	for i := range after {
		grown = max(grown, after[i]-before[i])
	}
	s.figure(c, report.Figure{Row: row, What: "memory for each", Unit: report.Bytes, Value: float64(grown) / float64(streams)})
	return errors.Join(open.Close(), rest(ctx, c))
}

// keys measures a load of many keys, and the memory after it.
func (s *Suite) keys(ctx context.Context, c *sized) error {
	return s.loaded(ctx, c, count(c.plan.Keys)+" keys", c.plan.Keys, 1)
}

// rested measures the memory of members with all keys after a rest.
func (s *Suite) rested(ctx context.Context, c *sized) error {
	return s.restedMemory(ctx, c, fmt.Sprintf("%s keys, %v later", count(c.plan.Keys), c.plan.Warmup))
}

// scans measures reads of all keys with short answers.
func (s *Suite) scans(ctx context.Context, c *sized) error {
	for _, scan := range servers.Scans() {
		row := fmt.Sprintf("%s of %s", scan.Name, count(c.plan.Keys))
		took, err := scan.Run(ctx, c.roles.Leader, scans, c.plan.Keys)
		if err != nil {
			return err
		}
		s.figure(c, report.Figure{Row: row, What: "median time", Value: float64(took)})
	}
	return nil
}

// joined measures how soon a new member has applied the data of the others.
func (s *Suite) joined(ctx context.Context, c *sized) error {
	row := fmt.Sprintf("%s keys on the disk", count(c.plan.Keys))
	disk, err := servers.Disk(c.cluster)
	if err != nil {
		return err
	}
	s.figure(c, report.Figure{Row: row, What: "largest data directory", Unit: report.Bytes, Value: float64(disk)})
	took, err := servers.Join(ctx, c.cluster)
	c.Endpoints = c.cluster.Endpoints() // it may come to lead
	s.figure(c, report.Figure{Row: row, What: "a new member has them after", Value: float64(took)})
	return err
}

// restarted kills all members, and measures how soon they serve again.
func (s *Suite) restarted(ctx context.Context, c *sized) error {
	took, err := servers.Restart(ctx, c.cluster)
	if err != nil {
		return err
	}
	row := fmt.Sprintf("%s keys on the disk", count(c.plan.Keys))
	s.figure(c, report.Figure{Row: row, What: "all are killed; from the start to a read", Value: float64(took)})
	if err := s.restedMemory(ctx, c, fmt.Sprintf("%s keys after the restart", count(c.plan.Keys))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	c.roles, err = servers.Find(ctx, nil, c.Endpoints)
	return err
}

// versions measures keys with many versions.
func (s *Suite) versions(ctx context.Context, c *sized) error {
	row := fmt.Sprintf("%s keys × %d versions", count(c.plan.Keys/sizeVersions), sizeVersions)
	if err := s.loaded(ctx, c, row, c.plan.Keys/sizeVersions, sizeVersions); err != nil {
		return err
	}
	return s.restedMemory(ctx, c, fmt.Sprintf("%s, %v later", row, c.plan.Warmup))
}

// compaction measures a compaction at the newest revision.
func (s *Suite) compaction(ctx context.Context, c *sized) error {
	row := fmt.Sprintf("compaction --physical of %s versions", count(c.plan.Keys/sizeVersions*(sizeVersions-1)))
	var took time.Duration
	probed, err := servers.Probe(ctx, c.roles.Leader, func() (err error) {
		begun := time.Now()
		if took, err = servers.Compact(ctx, c.roles.Leader, c.revision); err != nil {
			return err
		}
		// Servers that answer sooner do their work later.
		return durations.Sleep(ctx, c.plan.Duration-time.Since(begun))
	})
	if err != nil {
		return err
	}
	s.figure(c, report.Figure{Row: row, What: "returns after", Value: float64(took)})
	s.probed(c, row, probed)
	return s.restedMemory(ctx, c, "after that compaction")
}

// loaded measures a closed loop of transactions of puts, and beside it a client that sends
// at a fixed rate.
func (s *Suite) loaded(ctx context.Context, c *sized, row string, keys, versions int) error {
	var filled servers.Filled
	var probed [2]*load.Tally
	loading := row + " are loaded"
	cpu, err := processors(c, func() (err error) {
		probed, err = servers.Probe(ctx, c.roles.Leader, func() (err error) {
			filled, err = s.fill(ctx, c, keys, versions, sizePerTxn)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	puts := float64(keys * versions)
	s.figure(c, report.Figure{Row: loading, What: "time", Value: float64(filled.Took)})
	s.figure(c, report.Figure{Row: loading, What: "CPU of all members for a put", Value: float64(cpu) / puts})
	s.probed(c, loading, probed)
	return s.memory(c, row)
}

// fill sends the puts to the leader.
func (s *Suite) fill(ctx context.Context, c *sized, keys, versions, perTxn int) (servers.Filled, error) {
	f := servers.Fill{Endpoint: c.roles.Leader, Keys: keys, Versions: versions, ValueLen: sizeValueLen, Clients: sizeClients, PerTxn: perTxn}
	done, err := f.Run(ctx)
	if done.Failed > 0 {
		s.Report.Note("size, %s: %d transactions of a load failed and were made again.", c.Name, done.Failed)
	}
	c.revision = max(c.revision, done.Revision)
	return done, err
}
