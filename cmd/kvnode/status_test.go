package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/kvnode/server/status"
)

// What an operator sees of a cluster in which everything has happened.
func TestStatusTable(t *testing.T) {
	lease := func(state string, remaining float64) status.Lease {
		return status.Lease{State: state, RemainingMS: remaining, MarginMS: 180}
	}
	answers := []answer{
		{Endpoint: "10.0.0.1:2379", Status: &status.Report{
			Name: "a", Role: "leader", Term: 7, Leader: "a1", Lease: lease("valid", 612.4),
			Reads: map[string]uint64{"lease": 123456, "joined": 2}, Applied: 99, Commit: 100,
			Peers:      []status.Peer{{ID: "b1", Name: "b", Connected: true, ClockSuspect: true}, {ID: "c1"}},
			Suspicions: status.Suspicions{Last: &status.FailOver{Cause: "hint", DetectedMS: 2.1, PromiseMS: 239.7, ElectionMS: 8, CommitMS: 3}},
		}},
		{Endpoint: "10.0.0.2:2379", Status: &status.Report{
			Name: "b", Role: "follower", Term: 7, Leader: "a1", Lease: lease("not_leader", 0),
			Promise: status.Promise{RemainingMS: 803.2}, Applied: 98, Commit: 100,
			ClusterVersion: 1, ClusterVersionKeptBy: []string{"d (http://10.0.0.4:2380): not connected"},
		}},
		{Endpoint: "10.0.0.3:2379", Status: &status.Report{
			Name: "c", Role: "pre_candidate", Term: 6, Lease: lease("restart_hold", 0), Replaying: true,
			Promise: status.Promise{RemainingMS: 10, RestartHoldMS: 450}, DiskFull: true, CheckpointError: "no space left on device",
			Alarms: []status.Alarm{{Type: "NOSPACE", Member: "a1", Name: "a"}, {Type: "CORRUPT", Member: "d1"}, {Type: "CORRUPT"}},
			Reads:  map[string]uint64{"read_index": 1}, Awaited: []string{"d (http://10.0.0.4:2380)"},
		}},
		{Endpoint: "10.0.0.4:2379", Error: "connection error:\n connection refused"},
	}
	var b strings.Builder
	if err := (&asker{output: "table"}).print(&b, answers); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.String())
}

func TestTheLastFailOverIsTheLeaders(t *testing.T) {
	last := status.Suspicions{Last: &status.FailOver{Cause: "silence", DetectedMS: 1000, ElectionMS: 60.2, CommitMS: 4}}
	asked := status.Suspicions{Last: &status.FailOver{Cause: "transfer", ElectionMS: 8}}
	for want, r := range map[string]*status.Report{
		"last fail-over: silence 1000 ms, election 60 ms, first commit 4 ms": {Role: "leader", Suspicions: last},
		"last fail-over: transfer, election 8 ms, first commit 0 ms":         {Role: "leader", Suspicions: asked},
		"": {Role: "follower", Suspicions: last},
	} {
		if got := failOver(r); got != want {
			t.Errorf("failOver(%s) = %q, want %q", r.Role, got, want)
		}
	}
	if got := failOver(&status.Report{Role: "leader"}) + failOver(nil); got != "" {
		t.Errorf("failOver() of a leader without predecessor = %q, want nothing", got)
	}
}

func TestStatusOfFailure(t *testing.T) {
	r := status.Report{Leader: "1", Error: "the disk\nhas failed", Lease: status.Lease{Error: "misuse"}}
	if got, want := note(&r), "the disk has failed; misuse"; got != want {
		t.Errorf("note() = %q, want %q", got, want)
	}
}

// Watching draws again until it is interrupted, and a dead member is no reason
// to end.
func TestWatch(t *testing.T) {
	var out buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	a := &asker{
		sys: &System{Stdout: &out}, caller: caller{endpoints: []string{free(t)}, timeout: time.Second},
		interval: 10 * time.Millisecond, watch: true, output: "table",
	}
	go func() { done <- a.run(ctx) }()
	for deadline := time.Now().Add(time.Minute); strings.Count(out.String(), "ENDPOINT") < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a minute has passed, want three tables: %s", out.String())
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run() of an interrupted watch = %v, want nil", err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("the watch draws with escape sequences, want none: the output is no terminal")
	}
}

// An endpoint with the wrong port or scheme yields an error that names the right one.
func TestStatusAtTheWrongPort(t *testing.T) {
	member := func(set func(*server.Config)) *server.Server {
		c := server.Config{Node: node.Config{DataDir: t.TempDir(), SegmentSize: smallSegment}, ListenPeerURLs: []string{"http://" + free(t)}}
		set(&c)
		s, err := server.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.Background()) })
		return s
	}
	plain := member(func(c *server.Config) {
		c.ListenClientURLs, c.ListenMetricsURLs = []string{"http://" + free(t)}, []string{"http://" + free(t)}
	})
	secure := member(func(c *server.Config) {
		c.ListenClientURLs, c.ListenMetricsURLs = []string{"https://" + free(t)}, []string{"https://" + free(t)}
		c.ClientTLS.Auto = true
	})
	ca := filepath.Join(secure.Node().Config().DataDir, "fixtures", "client", "cert.pem")
	for _, test := range []struct{ name, endpoint, want string }{
		{"HTTP", "http://" + plain.MetricsAddrs()[0], "give one of --listen-client-urls"},
		{"TLS", "http://" + secure.ClientAddrs()[0], "https://host:port"}, // in either text: the end may overtake the alert
		{"HTTP over TLS", "http://" + secure.MetricsAddrs()[0], "give "},
		{"plain text", "https://" + plain.ClientAddrs()[0], "give http://host:port"},
		{"HTTP over TLS, asked with TLS", "https://" + secure.MetricsAddrs()[0], "give one of --listen-client-urls"},
		{"the right one", "https://" + secure.ClientAddrs()[0], ""},
	} {
		code, stdout, stderr := kvnode("status", "--timeout", "15s", "--endpoints", test.endpoint, "--cacert", ca)
		if (code == exitOK) != (test.want == "") || !strings.Contains(stdout, test.want) {
			t.Errorf("kvnode status at a port for %s = %d %s %s, want %q", test.name, code, stdout, stderr, test.want)
		}
	}
}
