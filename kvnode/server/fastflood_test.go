package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/flood"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// Clients that send requests on many streams, and take no answers, cost the member a bounded number of
// goroutines and bytes. A client on another connection is served meanwhile.
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

// A stream of fastkv above its limit is refused before it costs a goroutine or buffers.
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

// used is what a process has.
type used struct {
	goroutines int
	bytes      int64 // of objects and stacks
}

func usage() used {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)}
}

// watchUsage returns what ends it and returns the most that it has seen.
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
