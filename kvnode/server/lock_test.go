package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
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

// However many JSON clients wait for a lock, another one can unlock it.
func TestWaitingJSONClientsLeaveCapacity(t *testing.T) {
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

// When a member stops, waits for locks and elections fail at once, by gRPC and JSON, and leave no
// key.
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
	if stopped.drainTimedOut.Load() {
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

// waits waits for the lock l, for a leader of e, and for the lock l by HTTP, and returns channels
// for the results.
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

// A lock counts as one request in the metrics, whatever the member requests from itself.
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

// Locks of the unmodified client on three members exclude each other, and their tokens increase
// in the order of holding.
func TestMutexExcludes(t *testing.T) {
	var h holding
	var wg sync.WaitGroup
	for _, s := range trio(t) {
		for range 2 {
			c := client(t, s)
			wg.Go(func() { h.repeatedly(t, c, 3) })
		}
	}
	wg.Wait()
	for i := 1; i < len(h.tokens); i++ {
		if h.tokens[i] <= h.tokens[i-1] {
			t.Errorf("token %d after %d, want a higher one", h.tokens[i], h.tokens[i-1])
		}
	}
	if len(h.tokens) != 18 {
		t.Errorf("the lock was held %d times, want 18", len(h.tokens))
	}
}

// holding records the holders of one lock.
type holding struct {
	sync.Mutex

	holders int
	tokens  []int64
}

// repeatedly takes the lock several times in one session.
func (h *holding) repeatedly(t *testing.T, c *clientv3.Client, times int) {
	session, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	if err != nil {
		t.Error(err)
		return
	}
	m := concurrency.NewMutex(session, "/lock")
	for range times {
		if err := m.Lock(t.Context()); err != nil {
			t.Error(err)
			return
		}
		h.note(t, c, m.Key())
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// note records the token of the current holder, which must be the only one.
func (h *holding) note(t *testing.T, c *clientv3.Client, key string) {
	h.Lock()
	defer h.Unlock()
	if h.holders++; h.holders != 1 {
		t.Errorf("%d hold the lock, want 1", h.holders)
	}
	resp, err := c.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Errorf("Get(%s) = %v, %v, want the lock's key", key, resp, err)
	} else {
		h.tokens = append(h.tokens, resp.Kvs[0].GetCreateRevision())
	}
	h.holders--
}

// A session and its election survive the loss of the leader.
func TestASessionOutlivesTheLeader(t *testing.T) {
	skipShort(t)
	var e *concurrency.Election
	// A machine that is busy for a whole TTL may send all its keep-alives late.
	for ttl := 3; e == nil; ttl *= 4 {
		if e = outlives(t, ttl); e == nil && ttl > 40 {
			t.Fatal("each session ended with the leader")
		}
	}
	if resp, err := e.Leader(t.Context()); err != nil || string(resp.Kvs[0].GetValue()) != "me" {
		t.Errorf("Leader() = %v, %v, want me", resp, err)
	}
	if err := e.Resign(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.Leader(t.Context()); !errors.Is(err, concurrency.ErrElectionNoLeader) {
		t.Errorf("Leader() after Resign = %v, want %v", err, concurrency.ErrElectionNoLeader)
	}
}

// outlives returns the election that a session with this TTL, in seconds, wins and keeps without
// the leader, or nil if the session ended.
func outlives(t *testing.T, ttl int) *concurrency.Election {
	t.Helper()
	all := trio(t, elects(time.Second)) // or no TTL lease would end for long
	old, others := leader(t, all)
	session, err := concurrency.NewSession(client(t, others...), concurrency.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	e := concurrency.NewElection(session, "/elect")
	if err := e.Campaign(t.Context(), "me"); err != nil {
		return nil
	}
	stop(t, old)
	// Wait for longer than the TTL: only keep-alives through the new leader keep the session.
	select {
	case <-session.Done():
		t.Logf("a session with a TTL of %d s ended with the leader", ttl)
		return nil
	case <-time.After(time.Duration(ttl+2) * time.Second):
		return e
	}
}

// The lock of a dead holder goes to the next caller after its TTL, and writes with the old token
// fail.
func TestADeadHoldersLockIsTaken(t *testing.T) {
	skipShort(t)
	s := solo(t)
	dead, alive := client(t, s), client(t, s)
	grant, err := dead.Grant(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	// No client keeps it alive.
	ctx, cancel := context.WithCancel(t.Context())
	first, err := concurrency.NewSession(dead, concurrency.WithLease(grant.ID), concurrency.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	m := concurrency.NewMutex(first, "/lock")
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	first.Orphan()
	second, err := concurrency.NewSession(alive)
	if err != nil {
		t.Fatal(err)
	}
	inTime, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	next := concurrency.NewMutex(second, "/lock")
	if err := next.Lock(inTime); err != nil {
		t.Fatal(err)
	}
	stale, err := dead.Txn(t.Context()).If(m.IsOwner()).Then(clientv3.OpPut("guarded", "stale")).Commit()
	if err != nil || stale.Succeeded {
		t.Errorf("a write with the lost lock = %+v, %v, want it refused", stale, err)
	}
	if fresh, err := alive.Txn(t.Context()).If(next.IsOwner()).Then(clientv3.OpPut("guarded", "fresh")).Commit(); err != nil || !fresh.Succeeded {
		t.Errorf("a write with the lock = %+v, %v, want it done", fresh, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestSTMAddsUp(t *testing.T) {
	all := trio(t)
	var wg sync.WaitGroup
	for _, s := range all {
		c := client(t, s)
		wg.Go(func() {
			for range 20 {
				_, err := concurrency.NewSTM(c, func(stm concurrency.STM) error {
					n, _ := strconv.Atoi(stm.Get("sum"))
					stm.Put("sum", fmt.Sprint(n+1))
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if resp, err := client(t, all...).Get(t.Context(), "sum"); err != nil || string(resp.Kvs[0].GetValue()) != "60" {
		t.Errorf("sum = %v, %v, want 60", resp, err)
	}
}
