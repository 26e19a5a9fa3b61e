package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/flood"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// A flood of HTTP/2 frames delays other clients and the raft loop only briefly: no request fails,
// and there is no election.
func TestFloods(t *testing.T) {
	// With -race on a busy machine a put may take longer than the default request timeout of 7 s.
	s := solo(t, elects(calmElection))
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

// useDuringFlood floods a server on two connections while c writes.
func useDuringFlood(t *testing.T, s *Server, c *clientv3.Client, kind flood.Kind) {
	t.Helper()
	const floods = 2
	puts := 20
	if testing.Short() {
		puts = 1 // with -race each takes long in a flood
	}
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

// floodUntilDone floods a server, and reconnects after its connection was closed.
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

// A flood does not delay a stop.
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

// Clients that send requests on many streams and do not read take a limited number of goroutines
// and bytes. Another client is served meanwhile.
func TestRequestsOnManyStreams(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	if _, err := c.Put(t.Context(), "k", string(make([]byte, 2<<10))); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	before := usage()
	peak := watchUsage(t)
	at := slices.IndexFunc(flood.Kinds, func(k flood.Kind) bool { return k.Name == "gets on streams" })
	const conns, streams = 8, 500
	requests, _ := flood.Kinds[at].Rounds(flood.Hello(), 1, "", streams)
	for range conns {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.ClientAddrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() { _, _ = io.Copy(io.Discard, conn) }() // it ends with the connection
		if _, err := conn.Write(requests); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		if _, err := c.Put(t.Context(), "other", "v"); err != nil {
			t.Fatalf("Put() by another client: %v", err)
		}
		if _, err := c.Get(t.Context(), "other"); err != nil {
			t.Fatalf("Get() by another client: %v", err)
		}
	}
	most := peak()
	t.Logf("before %+v, at most %+v", before, most)
	if n := most.goroutines - before.goroutines; n > 12_000 {
		t.Errorf("%d goroutines for %d streams, want 12,000 at most", n, conns*streams)
	}
	if n := most.bytes - before.bytes; n > 256<<20 {
		t.Errorf("%d MiB for %d streams, want 256 at most", n>>20, conns*streams)
	}
}

// A stream of fastkv above the limit is rejected before it costs a goroutine or buffers.
func TestAStreamTooManyIsRefusedEarly(t *testing.T) {
	s := solo(t)
	conn := dial(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	open := func() error {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: fastwire.Stream, ServerStreams: true, ClientStreams: true}, fastwire.Method, grpc.ForceCodecV2(fastwire.NewCodec()))
		if err != nil {
			return err
		}
		var hello fastwire.Raw
		return stream.RecvMsg(&hello)
	}
	n := 0
	err := open()
	for ; err == nil; err = open() {
		n++
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "make calls instead") {
		t.Errorf("stream %d is refused with %v, want ResourceExhausted that says what to do", n+1, err)
	}
	until(t, "the refused stream is counted no more", func() bool {
		open, refused := s.clients.Streams()
		return refused == 1 && open == int64(n)
	})
	if _, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Errorf("Put() beside %d streams: %v", n, err)
	}
}

// used is the memory use of a process.
type used struct {
	goroutines int
	bytes      int64 // of objects and stacks
}

func usage() used {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)}
}

// watchUsage returns a function that stops it and returns the maximum use.
func watchUsage(t *testing.T) (end func() used) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	var most used
	go func() {
		defer close(ended)
		for {
			now := usage()
			most.goroutines, most.bytes = max(most.goroutines, now.goroutines), max(most.bytes, now.bytes)
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() used { close(stop); <-ended; return most }
}
