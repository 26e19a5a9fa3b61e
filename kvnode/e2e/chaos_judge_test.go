package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// judge stops the load and holds what it saw against what is promised.
func (c *chaos) judge() {
	t := c.t
	took := time.Since(c.start)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+took)
	defer cancel()
	history, err := c.l.Stop()
	if err != nil {
		t.Error(err)
	}
	final, err := load.Final(ctx, c.c.Members()[0])
	if err != nil {
		t.Fatal(err)
	}
	rep := linz.Check(history, final, 0)
	t.Logf("%v of chaos: %v; paths %v; %d leaders found reads waiting when they woke", took.Round(time.Millisecond), rep, c.l.Paths(), c.woken)
	t.Logf("done: %v", c.did)
	if err := rep.Err(); err != nil {
		t.Error(err)
		files, err := rep.WritePictures(t.ArtifactDir())
		t.Logf("pictures: %s (%v); keep them with -artifacts", strings.Join(files, " "), err)
	}
	hash, err := load.Hashes(ctx, c.c.Members(), final.Revision)
	if err != nil {
		t.Error(err)
	}
	t.Logf("all members hash to %x at revision %d", hash, final.Revision)
	for _, m := range c.c.Members() {
		missing, err := load.Missing(ctx, m, history)
		if err != nil {
			t.Error(err)
		}
		for _, w := range missing[:min(len(missing), 5)] {
			t.Errorf("%s has lost one of %d acknowledged writes: %v", m.Name, len(missing), &w)
		}
	}
	c.judgePaths()
	c.judgeWatches(ctx, c.judgeLocks(ctx), history)
	c.judgeTraces()
}

// traceOf is the file in which a member says what its lease decides.
func traceOf(m *testcluster.Member) string { return strings.TrimSuffix(m.LogFile, ".log") + ".trace" }

// judgeTraces holds what all leases have decided against the rules. What a member that
// was killed had not written yet is missing, and nothing else.
func (c *chaos) judgeTraces() {
	c.t.Helper()
	if c.p.Name != kvnode {
		return
	}
	if err := c.c.Stop(); err != nil {
		c.t.Log(err) // it was killed, then
	}
	var files []string
	for _, m := range c.c.Members() {
		files = append(files, traceOf(m))
	}
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		c.t.Fatal(err)
	}
	v := leasetrace.Judge(all)
	c.t.Logf("traces: %v", v)
	if err := v.Err(); err != nil {
		c.t.Error(err)
	}
	if v.Terms == 0 || v.Matched == 0 {
		c.t.Errorf("the traces show %d terms with a leader and %d matched messages, want some of both", v.Terms, v.Matched)
	}
}

// judgeLocks ends the contenders and returns the last revision of all.
func (c *chaos) judgeLocks(ctx context.Context) int64 {
	c.t.Helper()
	acquired, refused, err := c.locks.Stop()
	if err != nil {
		c.t.Error(err)
	}
	c.t.Logf("the lock was acquired %d times, and %d late writes were refused", acquired, refused)
	if acquired < *roundsFlag/2 || refused == 0 && *roundsFlag >= 30 {
		c.t.Errorf("the lock was acquired %d times with %d late writes refused, want more in %d rounds", acquired, refused, *roundsFlag)
	}
	final, err := load.Final(ctx, c.c.Members()[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return final.Revision
}

// judgeWatches ends the watches and compares what they saw with each other, with
// the writes that were acknowledged, and with what locks promise.
func (c *chaos) judgeWatches(ctx context.Context, revision int64, history []linz.Op) {
	c.t.Helper()
	seen, err := c.watches.Stop(ctx, revision)
	if err != nil {
		c.t.Error(err)
	}
	c.t.Logf("watches, opened %d times, have seen %d events up to revision %d", c.watches.Opened(), len(seen), revision)
	if err := load.JudgeLocks(seen); err != nil {
		c.t.Error(err)
	}
	type write struct {
		revision int64
		key      string
	}
	told := make(map[write]bool)
	for _, e := range seen {
		told[write{e.Revision, e.Key}] = true
	}
	for _, op := range linz.Acknowledged(history) {
		if !told[write{op.Revision, op.Key}] {
			c.t.Errorf("no watch has told of %v", &op)
			return
		}
	}
}

// judgePaths sees to it that the lease was at work: a cluster that never trusts
// its lease would pass all else.
func (c *chaos) judgePaths() {
	c.t.Helper()
	if c.p.Name != kvnode {
		return
	}
	byLease := c.l.Paths()["lease"] + c.l.Paths()["joined"]
	if want := int(c.l.Reads()) / 10; byLease < want || byLease == 0 {
		c.t.Errorf("%d of %d reads were served by lease, want %d: %v", byLease, c.l.Reads(), want, c.l.Paths())
	}
}
