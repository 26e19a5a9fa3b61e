package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/listener"
)

// inPages runs f with a client's end of a connection to pages, in virtual time.
func inPages(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, c net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pages, l := newPages(handler, slog.New(slog.DiscardHandler)), listener.NewQueue()
		done := make(chan error, 1)
		go func() { done <- pages.Serve(l) }()
		client, server := net.Pipe()
		if err := l.Push(server); err != nil {
			t.Fatal(err)
		}
		f(t, client)
		_, _ = client.Close(), pages.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve() = %v, want ErrServerClosed", err)
		}
	})
}

// drip sends a request whose body has a byte each second, and returns how long its
// connection lasts.
func drip(t *testing.T, c net.Conn, method, path string) (took time.Duration, answer string) {
	t.Helper()
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		_, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", method, path)
		for err == nil {
			time.Sleep(time.Second)
			_, err = c.Write([]byte("x"))
		}
	}()
	said, _ := io.ReadAll(c) // how it ends is all there is to know
	took = time.Since(began)
	_ = c.Close()
	<-done
	return took, string(said)
}

// A request whose body comes a byte at a time ends, whether or not a page wants the
// body, and its sender is told why where somebody waited for it.
func TestABodyThatTakesForEver(t *testing.T) {
	reads := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
	inPages(t, reads, func(t *testing.T, c net.Conn) {
		took, answer := drip(t, c, http.MethodPost, "/v3/kv/put")
		if took > bodyTime+5*time.Second || !strings.Contains(answer, "not arrived within 1m0s") {
			t.Errorf("a body of a byte a second lasts %v and gets %q, want %v and the reason", took, answer, bodyTime)
		}
	})
	inPages(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, c net.Conn) {
		if took, _ := drip(t, c, http.MethodGet, "/metrics"); took > bodyTime+5*time.Second {
			t.Errorf("a body that no page reads lasts %v, want %v", took, bodyTime)
		}
	})
}

// Streams may be slow, answers may last, and a connection is good for more than one
// request: the time limit is for bodies alone.
func TestWhatMayLast(t *testing.T) {
	long := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/v3/lock/lock" {
			select {
			case <-time.After(10 * bodyTime):
			case <-r.Context().Done():
				err = r.Context().Err()
			}
		}
		_, _ = fmt.Fprintf(w, "%d bytes, %v", len(body), err) // the other end says what is missing
	}
	inPages(t, long, func(t *testing.T, c net.Conn) {
		answers := bufio.NewReader(c)
		say := func(format string, args ...any) {
			t.Helper()
			if _, err := fmt.Fprintf(c, format, args...); err != nil {
				t.Fatal(err)
			}
		}
		wait := func(what string) {
			t.Helper()
			response, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != "200 bytes, <nil>" {
				t.Errorf("%s gets %q, %v, want all of it read and served", what, body, err)
			}
		}
		for range 2 {
			say("POST /v3/lock/lock HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n%0200d", 1)
			wait("an answer that lasts ten times as long as a body may take")
			time.Sleep(idleTime - time.Second)
		}
		for _, path := range []string{"/v3/watch", "/v3beta/watch", "/v3beta/lease/keepalive"} {
			say("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\r\n", path)
			for range 200 {
				time.Sleep(time.Second)
				say("1")
			}
			wait("a stream of a byte a second to " + path)
		}
	})
}

// Whatever has requests that are streams is known, so that none of them is cut.
func TestStreamingPathsAreKnown(t *testing.T) {
	s := solo(t)
	paths := map[string]string{"etcdserverpb.Watch/Watch": "/v3/watch", "etcdserverpb.Lease/LeaseKeepAlive": "/v3/lease/keepalive"}
	found := 0
	for service, info := range s.grpc.GetServiceInfo() {
		if service == fastwire.Service {
			continue // no path of the gateway leads there
		}
		for _, m := range info.Methods {
			if m.IsClientStream {
				found++
				if path := paths[service+"/"+m.Name]; !streaming[path] {
					t.Errorf("requests of %s/%s are streams, and its path %q is cut after %v", service, m.Name, path, bodyTime)
				}
			}
		}
	}
	if found != len(streaming) {
		t.Errorf("%d methods have streams of requests, and %d paths are for them", found, len(streaming))
	}
}
