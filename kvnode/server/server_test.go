package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/status"
	"github.com/leaderlease/go/leaderlease/detector"
)

// etcd's client writes to one member and reads from another.
func TestThreeServersAreACluster(t *testing.T) {
	all := trio(t)
	for i, s := range all {
		c := client(t, s)
		if _, err := c.Put(t.Context(), "key", string(rune('a'+i))); err != nil {
			t.Fatalf("Put at %s: %v", s.cfg.Node.Name, err)
		}
		other := client(t, all[(i+1)%len(all)])
		got, err := other.Get(t.Context(), "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].GetValue()) != string(rune('a'+i)) {
			t.Fatalf("Get at another member = %v, %v, want what was just written", got, err)
		}
	}
}

// The status is available to every client at the client port, and agrees with the page.
func TestStatusOverGRPC(t *testing.T) {
	all := trio(t)
	first, _ := leader(t, all)
	c := client(t, first)
	// On a busy machine the lease may be lost for a moment.
	until(t, "the leader has a valid lease, and reads under it", func() bool {
		if _, err := c.Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		r := first.Report()
		return r.Lease.State == "valid" && r.Lease.RemainingMS > 0 && r.Reads["lease"]+r.Reads["joined"] > 0
	})
	leaders := 0
	for _, s := range all {
		r, err := status.Fetch(t.Context(), dial(t, s))
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != s.cfg.Node.Name || r.ID != status.ID(s.Node().ID()) || !r.Ready || len(r.Peers) != 2 || r.Version == "" {
			t.Errorf("Fetch(%s) = %+v, want that member, ready, with two peers", s.cfg.Node.Name, r)
		}
		if r.Leader != status.ID(first.Node().ID()) {
			t.Errorf("Fetch(%s).Leader = %s, want %x", s.cfg.Node.Name, r.Leader, first.Node().ID())
		}
		if r.Role == "leader" {
			leaders++
			leaderReports(t, &r)
		}
	}
	if leaders != 1 {
		t.Errorf("%d members say that they lead, want 1", leaders)
	}
}

// Errors in the status use the names that Config.Spell returns.
func TestStatusIsSpelledOut(t *testing.T) {
	all := trio(t, func(c *Config) { c.Spell = strings.ToUpper })
	_, others := leader(t, all)
	stop(t, others[0])
	said := ""
	for deadline := time.Now().Add(patience); said == ""; time.Sleep(10 * time.Millisecond) {
		for _, p := range others[1].Report().Peers {
			said += p.LastError
		}
		if time.Now().After(deadline) {
			t.Fatalf("no error of a peer in %v after it was stopped", patience)
		}
	}
	if said != strings.ToUpper(said) {
		t.Errorf("last_error is %q, want it spelled out", said)
	}
}

// leaderReports checks a leader's report of its lease and reads.
func leaderReports(t *testing.T, r *status.Report) {
	t.Helper()
	if r.Lease.State == "valid" && r.Lease.EndMS-r.Lease.RemainingMS > r.Lease.MarginMS+1 {
		t.Errorf("Fetch(leader).Lease = %+v, want its end a margin after what remains", r.Lease)
	}
	if r.Reads["lease"]+r.Reads["joined"] == 0 {
		t.Errorf("Fetch(leader).Reads = %v, want reads under the lease", r.Reads)
	}
}

// A stop transfers leadership first. The next leader is elected at once, not after an election
// timeout, and does not wait for the promise to the old one.
func TestStopHandsLeadershipOver(t *testing.T) {
	// The transferee has 0.3 s, which may be too little on a busy machine, but hardly each
	// time. After that another member is asked, and both campaign.
	for try := 1; !stopHandsOver(t); try++ {
		if try == 5 {
			t.Fatalf("none of %d leaders that stopped has handed over at once", try)
		}
	}
}

// stopHandsOver reports whether a single transfer has made the next leader when the leader of a
// new cluster stops.
func stopHandsOver(t *testing.T) bool {
	t.Helper()
	all := trio(t)
	old, others := leader(t, all)
	term := old.Node().Term()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := old.Stop(ctx); err != nil {
		t.Fatalf("Stop() = %v, want nil", err)
	}
	await(t, "Done is closed after Stop", old.Done())
	if err := old.Err(); err != nil {
		t.Errorf("Err() after Stop = %v, want nil", err)
	}
	next := old.Node().Leader()
	if next == old.Node().ID() || next == 0 {
		t.Logf("Leader() when Stop returns = %x, want one of the others: it was to transfer leadership", next)
		return false
	}
	for _, s := range others {
		// Of the two only the leader needs to know by now.
		until(t, "each member knows the next leader and the cause", func() bool {
			l := s.Node().Leader()
			return l != 0 && l != old.Node().ID() && s.Node().Suspicions().Last != detector.FailOver{}
		})
		if got, way := s.Node().Term(), s.Node().Suspicions().Last.Cause; got != term+1 || way != detector.Transfer {
			t.Logf("%s is in term %d after the stop, by %v, want %d: one transfer", s.cfg.Node.Name, got, way, term+1)
			return false
		}
	}
	if _, err := client(t, others...).Put(t.Context(), "key", "after"); err != nil {
		t.Errorf("Put after the stop: %v, want the others to go on", err)
	}
	return true
}

// A stream that would never end does not delay a stop.
func TestStopEndsStreams(t *testing.T) {
	patientStop(t)
	s := solo(t)
	conn := dial(t, s)
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	if s.drainTimedOut.Load() {
		t.Error("Stop() has cut a stream after its time, want it ended before")
	}
	if last, err := watch.Recv(); err != nil || last.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the last health of a server that stops = %v, %v, want NOT_SERVING", last, err)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the stream goes on after Stop, want it ended")
	}
	if _, err := status.Fetch(t.Context(), conn); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("a request after Stop = %v, want Unavailable", err)
	}
}

func TestStopTwiceIsOneStop(t *testing.T) {
	s := solo(t)
	stop(t, s)
	stop(t, s)
}

// A port in use is an error that names the field, and leaves no other port bound.
func TestATakenPort(t *testing.T) {
	taken := ephemeral(t)
	defer taken.Close()
	url := listenerURL(taken, "")
	for _, test := range []struct {
		flag string
		set  func(*Config)
	}{
		{"ListenClientURLs", func(c *Config) { c.ListenClientURLs = []string{url} }},
		{"ListenPeerURLs", func(c *Config) { c.ListenPeerURLs = []string{url} }},
		{"ListenClientHTTPURLs", func(c *Config) { c.ListenClientHTTPURLs = []string{url} }},
		{"ListenMetricsURLs", func(c *Config) { c.ListenMetricsURLs = []string{url} }},
	} {
		t.Run(test.flag, func(t *testing.T) {
			client, peer := free(t), free(t)
			c := Config{Node: kvnode.Config{DataDir: t.TempDir()}, ListenClientURLs: []string{"http://" + client}, ListenPeerURLs: []string{"http://" + peer}}
			test.set(&c)
			_, err := Start(c)
			if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), test.flag+" "+url) {
				t.Errorf("Start() = %v, want EADDRINUSE with %s and %s", err, test.flag, url)
			}
			for _, addr := range []string{client, peer} {
				l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
				if err != nil {
					t.Errorf("listen on %s after the failed Start: %v, want it to be free again", addr, err)
					continue
				}
				_ = l.Close()
			}
		})
	}
}

// free returns an address that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	addr, err := testcluster.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// A server without its listener has failed.
func TestAListenerThatFails(t *testing.T) {
	l := ephemeral(t)
	s := solo(t, func(c *Config) { c.ClientListener = l })
	_ = l.Close()
	await(t, "Done is closed", s.Done())
	if err := s.Err(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Err() = %v, want net.ErrClosed", err)
	}
}

// A server has failed if its node has ended. Stop still cleans up.
func TestANodeThatEnds(t *testing.T) {
	s := solo(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Node().Stop(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "Done is closed", s.Done())
	if err := s.Err(); !errors.Is(err, kvnode.ErrStopped) {
		t.Errorf("Err() = %v, want kvnode.ErrStopped", err)
	}
	if code, body := page(t, s, "/metrics"); code != 200 {
		t.Errorf("GET /metrics of a failed member = %d %s, want it to answer until Stop", code, body)
	}
}
