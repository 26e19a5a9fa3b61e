package kvnode

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// What the leases of a cluster decide is written, through a partition and a restart,
// and the rules allow all of it.
func TestLeaseTraces(t *testing.T) {
	var files []string
	inCluster(t, 3, func(cfg *Config) {
		cfg.LeaseTrace = cfg.DataDir + ".trace"
		files = append(files, cfg.LeaseTrace)
	}, func(t *testing.T, c *cluster) {
		old := c.leader()
		c.put(old, "a", "1")
		c.isolate(old)
		c.put(c.leader(old), "a", "2")
		c.net.HealAll()
		time.Sleep(3 * time.Second)
		again := c.followers(c.leader())[0].Name()
		c.stop(again)
		c.start(again)
		c.put(c.leader(), "a", "3")
	})
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		t.Fatal(err)
	}
	v := leasetrace.Judge(all)
	if err := v.Err(); err != nil || v.Terms < 2 || v.Unmatched > 0 || len(v.Processes) != 4 {
		t.Errorf("%v\n%v\nwant at least 2 terms, 4 processes, and a send for every message", err, v)
	}
	for _, p := range v.Processes {
		if p.Until != "" {
			t.Errorf("%v ends where %s, want its end", p.Process, p.Until)
		}
	}
}

// A file that cannot be opened is a mistake in the configuration.
func TestALeaseTraceThatCannotBeOpened(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none", "trace")
	inCluster(t, 1, func(cfg *Config) { cfg.LeaseTrace = "" }, func(t *testing.T, c *cluster) {
		c.leader()
		c.stop("m1")
		cfg := c.cfgs["m1"]
		cfg.LeaseTrace = missing
		c.cfgs["m1"] = cfg
		if _, err := c.tryStart("m1"); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("Start = %v, want an error that names %s", err, missing)
		}
	})
}
