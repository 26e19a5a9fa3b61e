package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/size"
	"github.com/leaderlease/go/bench/internal/wire"
)

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
	row := fmt.Sprintf("%s watch streams on %d connections", count(c.plan.Streams), c.plan.Conns)
	before, err := memories(c)
	if err != nil {
		return err
	}
	open, err := size.OpenStreams(ctx, c.roles.Leader, c.plan.Streams, c.plan.Conns)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.figure(c, report.Figure{Row: row, What: "time to open all", Unit: report.Nanoseconds, Failed: report.WithoutPaths(err.Error())})
		return nil
	}
	s.later(open.Close)
	s.figure(c, report.Figure{Row: row, What: "time to open all", Unit: report.Nanoseconds, Value: float64(open.Took)})
	if err := rest(ctx, c); err != nil {
		return err
	}
	after, err := memories(c)
	if err != nil {
		return err
	}
	grown := int64(0)
	for i := range after {
		grown = max(grown, after[i].RSS()-before[i].RSS())
	}
	s.figure(c, report.Figure{Row: row, What: "memory for each", Unit: report.Bytes, Value: float64(grown) / float64(c.plan.Streams)})
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
	for _, scan := range size.Scans() {
		row := fmt.Sprintf("%s of %s", scan.Name, count(c.plan.Keys))
		var took time.Duration
		cpu, err := processors(c, func() (err error) {
			took, err = scan.Run(ctx, c.roles.Leader, scans, c.plan.Keys)
			return err
		})
		if err != nil {
			return err
		}
		s.figure(c, report.Figure{Row: row, What: "median time", Unit: report.Nanoseconds, Value: float64(took)})
		s.figure(c, report.Figure{Row: row, What: "CPU of all members", Unit: report.Nanoseconds, Value: float64(cpu) / scans})
	}
	return nil
}

// joined measures how soon a new member has applied the data of the others.
func (s *Suite) joined(ctx context.Context, c *sized) error {
	row := fmt.Sprintf("%s keys on the disk", count(c.plan.Keys))
	disk, err := size.Disk(c.cluster)
	if err != nil {
		return err
	}
	s.figure(c, report.Figure{Row: row, What: "largest data directory", Unit: report.Bytes, Value: float64(disk)})
	took, err := size.Join(ctx, c.cluster)
	c.Endpoints = c.cluster.Endpoints() // it may come to lead
	s.figure(c, report.Figure{Row: row, What: "a new member has them after", Unit: report.Nanoseconds, Value: float64(took)})
	return err
}

// restarted kills all members, and measures how soon they serve again.
func (s *Suite) restarted(ctx context.Context, c *sized) error {
	took, err := size.Restart(ctx, c.cluster)
	if err != nil {
		return err
	}
	row := fmt.Sprintf("%s keys on the disk", count(c.plan.Keys))
	s.figure(c, report.Figure{Row: row, What: "all are killed; from the start to a read", Unit: report.Nanoseconds, Value: float64(took)})
	if err := s.restedMemory(ctx, c, fmt.Sprintf("%s keys after the restart", count(c.plan.Keys))); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	c.roles, err = wire.Find(ctx, c.Endpoints)
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
	var done size.Compacted
	probed, err := size.Probe(ctx, c.roles.Leader, func() (err error) {
		begun := time.Now()
		if done, err = size.Compact(ctx, c.roles.Leader, c.revision); err != nil {
			return err
		}
		// Servers that answer sooner do their work later.
		return load.Sleep(ctx, c.plan.Duration-time.Since(begun))
	})
	if err != nil {
		return err
	}
	s.figure(c, report.Figure{Row: row, What: "returns after", Unit: report.Nanoseconds, Value: float64(done.Took)})
	s.figure(c, report.Figure{Row: row, What: "in use before", Unit: report.Bytes, Value: float64(done.Before)})
	s.figure(c, report.Figure{Row: row, What: "in use when it has returned", Unit: report.Bytes, Value: float64(done.After)})
	s.probed(c, row, &probed)
	return s.restedMemory(ctx, c, "after that compaction")
}

// loaded measures a closed loop of transactions of puts, and beside it a client that sends
// at a fixed rate.
func (s *Suite) loaded(ctx context.Context, c *sized, row string, keys, versions int) error {
	var filled size.Filled
	var probed size.Probed
	loading := row + " are loaded"
	cpu, err := processors(c, func() (err error) {
		probed, err = size.Probe(ctx, c.roles.Leader, func() (err error) {
			filled, err = s.fill(ctx, c, keys, versions, sizePerTxn)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	puts := float64(keys * versions)
	s.figure(c, report.Figure{Row: loading, What: "time", Unit: report.Nanoseconds, Value: float64(filled.Took)})
	s.figure(c, report.Figure{Row: loading, What: "CPU of all members for a put", Unit: report.Nanoseconds, Value: float64(cpu) / puts})
	s.probed(c, loading, &probed)
	return s.memory(c, row)
}

// fill sends the puts to the leader.
func (s *Suite) fill(ctx context.Context, c *sized, keys, versions, perTxn int) (size.Filled, error) {
	f := size.Fill{Endpoint: c.roles.Leader, Keys: keys, Versions: versions, ValueLen: sizeValueLen, Clients: sizeClients, PerTxn: perTxn}
	done, err := f.Run(ctx)
	if done.Failed > 0 {
		s.Report.Note("size, %s: %d transactions of a load failed and were made again.", c.Name, done.Failed)
	}
	c.revision = max(c.revision, done.Revision)
	return done, err
}
