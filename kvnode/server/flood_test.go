package server

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/flood"
)

// Whoever floods is cut off and counted, and everybody else goes on: another
// client, and the raft loop, whose lateness is exported.
func TestFloods(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	if _, err := c.Put(t.Context(), "k", "before"); err != nil {
		t.Fatal(err)
	}
	term := s.Node().Term()
	for _, kind := range flood.Kinds {
		if kind.Work {
			continue // what is answered is not cut off
		}
		passed := t.Run(kind.Name, func(t *testing.T) { flooded(t, s, c, kind) })
		if !passed {
			return // the others would flood for as long
		}
	}
	if got := s.Node().Term(); got != term {
		t.Errorf("the term is %d, was %d: want no election", got, term)
	}
	_, metrics := page(t, s, "/metrics")
	for _, name := range []string{"kvnode_flood_closed_connections_total", "kvnode_flood_frames_total", "kvnode_tick_late_seconds_count"} {
		if value(metrics, name) == 0 {
			t.Errorf("metric %s is missing or 0 after floods", name)
		}
	}
	if !strings.Contains(metrics, "kvnode_tick_late_max_seconds ") {
		t.Error("there is no metric kvnode_tick_late_max_seconds")
	}
}

// flooded has two connections flood a server until they are cut, while c writes.
func flooded(t *testing.T, s *Server, c *clientv3.Client, kind flood.Kind) {
	t.Helper()
	before := s.entrance.Floods().Closed
	const floods = 2
	var wg sync.WaitGroup
	cut := make(chan struct{})
	for range floods {
		wg.Go(func() { floodUntilCut(t, s, kind) })
	}
	go func() { wg.Wait(); close(cut) }()
	for done := false; !done; {
		if _, err := c.Put(t.Context(), "k", "during"); err != nil {
			t.Errorf("another client: %v", err)
		}
		select {
		case <-cut:
			done = true
		default:
		}
	}
	// gRPC itself has something against PING.
	if got := s.entrance.Floods().Closed - before; got != floods && kind.Name != "ping" {
		t.Errorf("%d connections are counted, want %d", got, floods)
	}
}

func floodUntilCut(t *testing.T, s *Server, kind flood.Kind) {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.ClientAddrs()[0])
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var rounds atomic.Uint64
	if err := kind.Run(ctx, conn, "/etcdserverpb.KV/Range", &rounds); err == nil || ctx.Err() != nil {
		t.Errorf("after %d rounds of a flood: %v, want that it is cut off", rounds.Load(), err)
	}
}

// value returns a metric without labels, 0 if there is none.
func value(metrics, name string) float64 {
	_, after, _ := strings.Cut(metrics, "\n"+name+" ")
	text, _, _ := strings.Cut(after, "\n")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return v
}

// A connection that is cut off while it waits for its turn holds up no stop.
func TestStopDuringAFlood(t *testing.T) {
	s := solo(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var rounds atomic.Uint64
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.ClientAddrs()[0])
				if err != nil {
					return // the server has stopped
				}
				// However it ends: the next dial says whether the server has stopped.
				_ = flood.Kinds[0].Run(ctx, conn, "/etcdserverpb.KV/Range", &rounds)
			}
		})
	}
	c := client(t, s)
	for s.entrance.Floods().Frames == 0 && !t.Failed() {
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	}
	stop(t, s)
}
