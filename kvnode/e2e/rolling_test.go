package e2e

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/fastkv"
)

var formerFlag = flag.String("former", "", "kvnode `binary` of a former version, an absolute path, from which and to which members are restarted")

// compares makes a member compare its data with the others' before it serves. kubeadm sets it.
const compares = "--feature-gates=InitialCorruptCheck=true"

// Members are restarted one after the other, as for an upgrade. Clients that know all members see no
// failed request, by unary calls or by a stream of package fastkv. Members of a former version may fail
// a write with the error that the leader has changed and the outcome is unknown. The lease is missing
// for no longer than a transfer takes, measured from the last member that reports a lease to the next.
// The same holds between this version and a former one, in both directions:
//
//	make rolling FORMER=COMMIT
func TestRollingRestart(t *testing.T) {
	rolls := versions(t)
	c := newCluster(t, testcluster.Config{Program: rolls[0].from, Flags: rollingFlags()})
	all, byStream := startRolling(t, c, 6)
	for _, r := range rolls {
		r.do(t, c, all, byStream)
	}
}

// Rolling restarts work as well when members know each other by their certificates.
func TestRollingRestartWithMutualTLS(t *testing.T) {
	rolls := versions(t)
	s := newSecured(t, rolls[0].from, rollingFlags()...)
	s.trust()
	for _, m := range s.Members() { // its status is asked for at its endpoint
		m.Flags = slices.DeleteFunc(m.Flags, func(f string) bool { return strings.HasPrefix(f, "--listen-client-http-urls=") })
	}
	all, byStream := startRolling(t, s.Cluster, 6)
	for _, r := range rolls {
		r.do(t, s.Cluster, all, byStream)
	}
}

// versions returns the pairs of versions to test.
func versions(t *testing.T) []roll {
	t.Helper()
	this := onlyKvnode(t)
	rolls := []roll{{"this version, again", this, this}}
	if *formerFlag != "" {
		former := this
		former.Path = *formerFlag
		rolls = []roll{
			{"the former version, again", former, former},
			{"the former version to this", former, this},
			rolls[0],
			{"this version to the former", this, former},
			{"the former version to this, again", former, this},
		}
	}
	return rolls
}

func rollingFlags(more ...string) []string {
	if !*slowFlag {
		more = append(more, electsLate)
	}
	return more
}

// Rolling restarts work as well when members compare their data at their start. There are enough keys
// to make this slow, and enough clients to write meanwhile.
func TestRollingRestartWithTheCheck(t *testing.T) {
	this := onlyKvnode(t)
	c := newCluster(t, testcluster.Config{Program: this, Flags: rollingFlags(compares)})
	all, byStream := startRolling(t, c, 30)
	fill(deadline(t), t, all[0], "filled/", "x", 60_000, 1000)
	r := roll{"this version, which compares its data", this, this}
	r.do(t, c, all, byStream)
	for _, m := range c.Members() {
		if !strings.Contains(m.Log(), "no difference to the members that could be compared") {
			t.Errorf("%s has not compared its data", m.Name)
		}
	}
}

// startRolling starts a cluster and clients. Every other client finds the leader by
// package client, and byStream sends its requests on a stream of package fastkv.
func startRolling(t *testing.T, c *testcluster.Cluster, clients int) (all []*clientv3.Client, byStream *clientv3.Client) {
	t.Helper()
	must(t, c.Serve(deadline(t)))
	for i := range clients {
		var find []grpc.DialOption
		if i%2 == 1 {
			find = client.DialOptions()
		}
		one, err := c.Client(find...)
		must(t, err)
		t.Cleanup(func() { _ = one.Close() })
		all = append(all, one)
	}
	byStream, err := c.Client()
	must(t, err)
	t.Cleanup(func() { _ = byStream.Close() })
	must(t, fastkv.Use(byStream))
	return all, byStream
}

// streamed is the number of concurrent requests on the stream of one client.
const streamed = 100

// roll is a rolling restart from one version to another.
type roll struct {
	name     string
	from, to testcluster.Program
}

func (r *roll) do(t *testing.T, c *testcluster.Cluster, all []*clientv3.Client, byStream *clientv3.Client) {
	t.Helper()
	use, streams, held := &canary{}, &canary{}, &holding{}
	restarts := chaos{t: t, c: c}
	stop := use.start(t.Context(), all)
	stopStreams := streams.start(t.Context(), slices.Repeat([]*clientv3.Client{byStream}, streamed))
	end := held.watch(t.Context(), c.Members())
	time.Sleep(time.Second)
	var errs []error
	for _, m := range c.Members() {
		m.Program = r.to
		errs = append(errs, restarts.replaceProcess(m))
	}
	time.Sleep(time.Second)
	stop()
	stopStreams()
	longest := end()
	t.Logf("%s: %d reads, %d writes, %d failed, %d told that the leader has changed; no lease for %v at most, in the end there is one of %v ms",
		r.name, use.reads.Load(), use.writes.Load(), use.failed.Load(), use.changed.Load(), longest.Round(time.Millisecond), held.promise)
	if err := errors.Join(errs...); err != nil {
		t.Logf("%s: %v", r.name, err)
		if *slowFlag || !errors.Is(err, errNotTransferred) {
			t.Fail()
		}
	}
	if use.failed.Load() > 0 {
		t.Errorf("%s: requests failed, such as: %v", r.name, use.why.Load())
	}
	most := int64(0)
	if *formerFlag != "" && (r.from.Path == *formerFlag || r.to.Path == *formerFlag) {
		most = int64(len(all) * len(c.Members())) // each client's that was under way
	}
	if use.changed.Load() > most {
		t.Errorf("%s: %d writes failed since the leader has changed, want %d at most", r.name, use.changed.Load(), most)
	}
	t.Logf("%s, by a stream: %d reads, %d writes, %d failed, %d told that the leader has changed",
		r.name, streams.reads.Load(), streams.writes.Load(), streams.failed.Load(), streams.changed.Load())
	if failed := streams.failed.Load() + streams.changed.Load(); failed > 0 && (*formerFlag == "" || r.from.Path != *formerFlag) { // it does not say what it has taken
		t.Errorf("%s: %d requests on a stream failed, such as: %v", r.name, failed, streams.why.Load())
	}
	// A leader of a former version sometimes campaigns against its transferee after the transferee's
	// election has begun. This version is not charged with that time.
	if *slowFlag && longest > rollingPause && r.from.Path != *formerFlag {
		t.Errorf("%s: no lease for %v, want %v at most", r.name, longest, rollingPause)
	}
}

// holding records when a member last reported that it holds the lease.
type holding struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration // between two such times
	promise float64       // of the last, in milliseconds: which version leads
}

// watch polls the members. The returned function stops it and returns the longest time without a lease.
func (h *holding) watch(ctx context.Context, members []*testcluster.Member) (end func() time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	h.last = time.Now()
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				if lease := statusOf(ctx, m).Lease; lease.State == "valid" {
					h.valid(asked, lease.DurationMS)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	return func() time.Duration { cancel(); wg.Wait(); return h.longest }
}

func (h *holding) valid(now time.Time, promise float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, now.Sub(h.last))
	if now.After(h.last) {
		h.last, h.promise = now, promise
	}
}
