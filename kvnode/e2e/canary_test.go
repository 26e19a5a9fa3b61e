package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

var (
	canaryFlag = flag.Duration("canary", 2*time.Second, "for how long a cluster is watched that should have no election; from 10 s on with kvnode's own election timeout")
	besideFlag = flag.String("beside", "", "`command` that keeps the machine busy meanwhile")
)

// Required shares of reads under the lease, on an idle machine and on a busy one.
const (
	byLeaseIdle = 0.999
	byLeaseBusy = 0.99
)

// While no member dies, no leader is replaced, however busy the machine is, and the lease is held
// nearly always. Each of three members, run with kvnode's own flags, has a client that reads four
// times for each write, at a modest rate. To run it for an hour, with all processors busy:
//
//	make canary FOR=1h
//	make canary FOR=1h BESIDE='stress-ng --cpu 0'
func TestCanary(t *testing.T) {
	long := *canaryFlag >= 10*time.Second
	cfg := testcluster.Config{Program: onlyKvnode(t)}
	if !long {
		cfg.Flags = []string{electsLate}
	}
	c := newCluster(t, cfg)
	must(t, c.Serve(deadline(t)))
	ctx, cancel := context.WithTimeout(t.Context(), *canaryFlag+2*patience)
	defer cancel()
	use := &canary{}
	stop := use.start(ctx, clients(t, c.Members()))
	defer runBeside(t)()
	first := watchOn(ctx, t, c, use, glimpse{})
	last := first
	for began := time.Now(); time.Since(began) < *canaryFlag || !last.minus(first).used() && ctx.Err() == nil; {
		time.Sleep(max(*canaryFlag/30, time.Second))
		last = watchOn(ctx, t, c, use, last)
		t.Logf("after %v, load %s: %s", time.Since(began).Round(time.Second), loadAverage(), last.since)
	}
	stop()
	all := last.minus(first)
	t.Logf("in all: %s\nticks at most %.3f s late; silence taken for an end: %.3f s at most", all, last.of["kvnode_tick_late_max_seconds"], last.of["kvnode_leader_silence_limit_seconds"])
	if all.of["kvnode_term"] > 0 {
		t.Errorf("%v elections, want none", all.of["kvnode_term"])
	}
	if all.failed > 0 {
		t.Errorf("%d operations failed, such as: %v", all.failed, use.why.Load())
	}
	least := byLeaseIdle
	if *besideFlag != "" {
		least = byLeaseBusy
	}
	if share := all.byLease(); long && share < least {
		t.Errorf("%.3f %% of the reads were answered under the lease, want %.1f", 100*share, 100*least)
	}
	if !all.used() {
		t.Errorf("%d reads and %d writes, want some", all.reads, all.writes)
	}
}

// canary counts the requests of the clients.
type canary struct {
	reads, writes, failed atomic.Int64
	changed               atomic.Int64 // writes of which the leader that had them was replaced
	why                   atomic.Value // a failure, as text
}

// start starts the clients, and returns a function that stops them.
func (u *canary) start(ctx context.Context, clients []*clientv3.Client) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, cl := range clients {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				u.once(ctx, cl, i%5 == 0)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// once makes one request. A request that stop cancels has not failed.
func (u *canary) once(ctx context.Context, cl *clientv3.Client, write bool) {
	one, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	count := &u.reads
	if write {
		count = &u.writes
		_, err = cl.Put(one, "canary", "v")
	} else {
		_, err = cl.Get(one, "canary")
	}
	switch {
	case err == nil:
		count.Add(1)
	case errors.Is(err, rpctypes.ErrLeaderChanged):
		u.changed.Add(1)
	case ctx.Err() == nil:
		u.failed.Add(1)
		u.why.Store(err.Error())
	}
}

// glimpse is the members' metrics at one time: the maxima of the metrics in most, the sums of others.
type glimpse struct {
	of                    map[string]float64
	reads, writes, failed int64
	since                 *glimpse // what has come since the time before
}

// used reports whether there are reads and writes to judge. A busy machine may need longer.
func (s *glimpse) used() bool { return s.reads > 0 && s.writes > 0 }

// most are the metrics of which the maximum counts.
var most = map[string]bool{"kvnode_term": true, "kvnode_tick_late_max_seconds": true, "kvnode_leader_silence_limit_seconds": true}

// watchOn reads the metrics of all members.
func watchOn(ctx context.Context, t *testing.T, c *testcluster.Cluster, use *canary, before glimpse) glimpse {
	t.Helper()
	now := glimpse{of: make(map[string]float64), reads: use.reads.Load(), writes: use.writes.Load(), failed: use.failed.Load() + use.changed.Load()}
	for _, m := range c.Members() {
		code, text := page(ctx, m, "/metrics")
		for ; code != 200; code, text = page(ctx, m, "/metrics") {
			must(t, ctx.Err())
			time.Sleep(100 * time.Millisecond)
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseFloat(value, 64)
			switch {
			case err != nil:
			case most[name]:
				now.of[name] = max(now.of[name], v)
			default:
				now.of[name] += v
			}
		}
	}
	now.since = now.minus(before)
	return now
}

func (s glimpse) minus(before glimpse) *glimpse {
	d := &glimpse{of: make(map[string]float64), reads: s.reads - before.reads, writes: s.writes - before.writes, failed: s.failed - before.failed}
	for name, v := range s.of {
		d.of[name] = v - before.of[name]
	}
	return d
}

func (s *glimpse) path(name string) float64 {
	return s.of[`leaderlease_reads_total{group="kvnode",path="`+name+`"}`]
}

// byLease returns the share of reads that were served under a lease, including reads that a follower
// forwarded to the leader.
func (s *glimpse) byLease() float64 {
	lease := s.path("lease") + min(s.path("forwarded"), s.of[`leaderlease_answered_reads_total{group="kvnode"}`])
	return lease / max(1, s.path("lease")+s.path("joined")+s.path("read_index")+s.path("forwarded"))
}

// String implements fmt.Stringer.
func (s *glimpse) String() string {
	text := fmt.Sprintf("%v elections, %d reads (%.3f %% by lease), %d writes, %d failed, leaders forgotten %v times, %v false alarms",
		s.of["kvnode_term"], s.reads, 100*s.byLease(), s.writes, s.failed, s.of["kvnode_leader_forgotten_total"], s.of["kvnode_leader_false_alarms_total"])
	for _, by := range []string{"hint", "pre-vote", "learnt-silence", "obituary"} {
		text += fmt.Sprintf(", %v by %s", s.of[`kvnode_leader_suspicions_total{by="`+by+`"}`], by)
	}
	return text
}

// runBeside starts a program that keeps the machine busy, and returns a function that ends it.
func runBeside(t *testing.T) (stop func()) {
	t.Helper()
	if *besideFlag == "" {
		return func() {}
	}
	words := strings.Fields(*besideFlag)
	busy := exec.Command(words[0], words[1:]...)
	busy.Stderr = os.Stderr
	must(t, busy.Start())
	return func() {
		_ = busy.Process.Signal(os.Interrupt) // it ends its own children
		_ = busy.Wait()
	}
}

// loadAverage returns the load of the last minute, if the system reports it.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // or not known
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
