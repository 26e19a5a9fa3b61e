package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	epb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
)

// postJSON posts to the gateway of s and returns the status and the answer.
func postJSON(ctx context.Context, s *Server, path, body string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.HTTPAddrs()[0]+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// However many wait by JSON for a lock, JSON gives it back.
func TestWaitingJSONClientsKeepNobodyOut(t *testing.T) {
	s := solo(t, func(c *Config) { c.API.MaxConcurrentStreams = 4 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const lock = `{"name":"bA=="}`
	if code, body, err := postJSON(ctx, s, "/v3/lock/lock", lock); err != nil || code != http.StatusOK {
		t.Fatalf("lock = %d %s, %v", code, body, err)
	}
	waiting, leave := context.WithCancel(ctx)
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer leave()
	for range 8 {
		waiters.Go(func() { _, _, _ = postJSON(waiting, s, "/v3/lock/lock", lock) })
	}
	inside := client(t, s)
	for line := int64(0); line != 9; {
		resp, err := inside.Get(ctx, "l/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatalf("Get() = %v while %d stand in line, want 9", err, line)
		}
		line = resp.Count
	}
	if code, body, err := postJSON(ctx, s, "/v3/lock/unlock", `{"key":"bC94"}`); err != nil || code != http.StatusOK {
		t.Errorf("unlock = %d %s, %v, want it served", code, body, err)
	}
}

// Who waits for a lock or an election, by gRPC or JSON, is told at once that the
// member stops, and does not stand in line afterwards.
func TestStopEndsWaits(t *testing.T) {
	patientStop(t)
	all := trio(t)
	_, others := leader(t, all)
	stopped, other := others[0], client(t, others[1])
	if _, err := lpb.NewLockClient(dial(t, others[1])).Lock(t.Context(), &lpb.LockRequest{Name: []byte("l")}); err != nil {
		t.Fatal(err)
	}
	lock, observe, page := waits(t, stopped, dial(t, stopped))
	waiting := func() int64 {
		resp, err := other.Get(t.Context(), "l/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Count
	}
	for until := time.Now().Add(patience); waiting() != 3; {
		if time.Now().After(until) {
			t.Fatalf("%d stand in line, want 3", waiting())
		}
	}
	stop(t, stopped)
	if stopped.cut.Load() {
		t.Error("Stop() has cut requests after their time, want them ended before")
	}
	const text = "etcdserver: server stopped"
	for what, err := range map[string]error{"Lock()": <-lock, "Observe()": <-observe} {
		if s := grpcstatus.Convert(err); s.Code() != codes.Unavailable || s.Message() != text {
			t.Errorf("%s = %v, want %v %s", what, err, codes.Unavailable, text)
		}
	}
	if body := <-page; !strings.Contains(body, text) {
		t.Errorf("POST /v3/lock/lock = %s, want %s", body, text)
	}
	if n := waiting(); n != 1 {
		t.Errorf("%d stand in line after the stop, want the holder alone", n)
	}
}

// waits has a server's clients wait for the lock l, for a leader of e, and for the lock
// l by HTTP, and returns how each of them ends.
func waits(t *testing.T, s *Server, conn *grpc.ClientConn) (lock, observe <-chan error, page <-chan string) {
	t.Helper()
	locked, observed, answered := make(chan error, 1), make(chan error, 1), make(chan string, 1)
	go func() {
		_, err := lpb.NewLockClient(conn).Lock(t.Context(), &lpb.LockRequest{Name: []byte("l")})
		locked <- err
	}()
	go func() {
		stream, err := epb.NewElectionClient(conn).Observe(t.Context(), &epb.LeaderRequest{Name: []byte("e")})
		if err == nil {
			_, err = stream.Recv()
		}
		observed <- err
	}()
	go func() {
		_, body, err := postJSON(t.Context(), s, "/v3/lock/lock", `{"name":"bA=="}`)
		if err != nil {
			body = err.Error()
		}
		answered <- body
	}()
	return locked, observed, answered
}

// A lock is one request in the metrics, whatever the member asks itself for it.
func TestALockIsOneRequest(t *testing.T) {
	s := solo(t)
	before := started(t, s)
	if _, err := lpb.NewLockClient(dial(t, s)).Lock(t.Context(), &lpb.LockRequest{Name: []byte("l")}); err != nil {
		t.Fatal(err)
	}
	if n := started(t, s) - before; n != 1 {
		t.Errorf("Lock() counts as %v requests, want 1", n)
	}
}
