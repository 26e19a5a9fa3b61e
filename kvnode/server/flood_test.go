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

// A flood of HTTP/2 frames delays neither other clients nor the raft loop for long: no
// request fails, and there is no election.
func TestFloods(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	if _, err := c.Put(t.Context(), "k", "before"); err != nil {
		t.Fatal(err)
	}
	term := s.Node().Term()
	for _, kind := range flood.Kinds {
		t.Run(kind.Name, func(t *testing.T) { useDuringFlood(t, s, c, kind) })
	}
	if got := s.Node().Term(); got != term {
		t.Errorf("the term is %d, was %d: want no election", got, term)
	}
	_, metrics := page(t, s, "/metrics")
	if value(metrics, "kvnode_tick_late_seconds_count") == 0 {
		t.Error("metric kvnode_tick_late_seconds_count is missing or 0 after floods")
	}
	if !strings.Contains(metrics, "kvnode_tick_late_max_seconds ") {
		t.Error("there is no metric kvnode_tick_late_max_seconds")
	}
}

// useDuringFlood has two connections flood a server while c writes.
func useDuringFlood(t *testing.T, s *Server, c *clientv3.Client, kind flood.Kind) {
	t.Helper()
	const floods, puts = 2, 20
	flooding, end := context.WithTimeout(t.Context(), patience)
	var wg sync.WaitGroup
	var rounds [floods]atomic.Uint64
	for i := range floods {
		wg.Go(func() { floodUntilDone(flooding, s, kind, &rounds[i]) })
	}
	until(t, "both connections flood", func() bool { return rounds[0].Load() > 0 && rounds[1].Load() > 0 })
	for range puts {
		if _, err := c.Put(t.Context(), "k", "during"); err != nil {
			t.Errorf("Put() of another client: %v", err)
		}
	}
	end()
	wg.Wait()
}

// floodUntilDone floods a server, with a new connection after one was closed.
func floodUntilDone(ctx context.Context, s *Server, kind flood.Kind, rounds *atomic.Uint64) {
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.ClientAddrs()[0])
		if err != nil {
			return // the server has stopped, or ctx has ended
		}
		_ = kind.Run(ctx, conn, "/etcdserverpb.KV/Range", rounds) // an error means that the connection is closed
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

// A flood does not hold up a stop.
func TestStopDuringAFlood(t *testing.T) {
	s := solo(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var rounds atomic.Uint64
	for range 4 {
		wg.Go(func() { floodUntilDone(ctx, s, flood.Kinds[0], &rounds) })
	}
	until(t, "the connections flood", func() bool { return rounds.Load() > 10_000 })
	stop(t, s)
}
