package server

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/internal/listener"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// serving serves both protocols of a client port. connect returns a connection to it
// in memory.
func serving(t *testing.T, e *listener.Clients, secure bool) (connect func() net.Conn) {
	t.Helper()
	accepted := listener.NewQueue()
	s := grpc.NewServer(e.Options(func(net.Addr, string) error { return nil })...)
	p := newPages(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(time.Hour)
		}
	}), slog.New(slog.DiscardHandler))
	served := make(chan struct{}, 2)
	go func() { _ = s.Serve(e.ForGRPC(accepted, secure)); served <- struct{}{} }()
	go func() { _ = p.Serve(e.Pages()); served <- struct{}{} }()
	t.Cleanup(func() {
		e.End()
		s.Stop()
		_ = p.Close()
		<-served
		<-served
	})
	return func() net.Conn {
		near, far := net.Pipe()
		if err := accepted.Push(far); err != nil {
			t.Fatal(err)
		}
		return near
	}
}

// A connection that does not begin with requests is closed in time, and not before.
func TestSlowConnections(t *testing.T) {
	f := newFiles(t)
	source, err := tlsconf.New(tlsconf.Config{CertFile: f.cert, KeyFile: f.key})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, said string
		secure     bool
		want       time.Duration
	}{
		{"silent", "", false, listener.HandshakeTime},
		{"silent, TLS", "", true, listener.HandshakeTime},
		{"half a TLS record", "\x16\x03\x01", true, listener.HandshakeTime},
		{"a letter that both protocols begin with", "P", false, listener.HandshakeTime},
		{"half of what HTTP/2 begins with", preface[:12], false, listener.HandshakeTime},
		{"HTTP/2 and nothing more", preface, false, listener.HandshakeTime},
		// This and what follows is bounded by the pages.
		{"half a request", "POST /v3/kv/range HTTP/1.1\r\nHost: ", false, headerTime},
		// It asks no more: the connection is idle.
		{"a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, idleTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{}.WithDefaults()
				certs := certificates{}
				if test.secure {
					certs.client = source
				}
				conn := serving(t, newClients(&cfg, certs), test.secure)()
				defer conn.Close()
				began := time.Now()
				go func() { _, _ = io.WriteString(conn, test.said) }()
				_, err := io.Copy(io.Discard, conn)
				if took := time.Since(began); took < test.want || took > test.want+time.Second {
					t.Errorf("the connection was cut after %v, %v, want %v", took, err, test.want)
				}
			})
		})
	}
}

// The time limit of the handshake ends with it: a watch through the gateway lasts.
func TestALongRequestIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.WithDefaults()
		conn := serving(t, newClients(&cfg, certificates{}), false)()
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n") }()
		began := time.Now()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("the answer after %v: %v, want one", time.Since(began), err)
		}
		_ = response.Body.Close()
	})
}

// A request that comes one byte at a time is the same request.
func TestSniffedBytesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.WithDefaults()
		conn := serving(t, newClients(&cfg, certificates{}), false)()
		defer conn.Close()
		go func() {
			for _, b := range []byte("PROPFIND / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") {
				time.Sleep(time.Millisecond)
				_, _ = conn.Write([]byte{b})
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("the answer = %s, want 200", response.Status)
		}
	})
}
