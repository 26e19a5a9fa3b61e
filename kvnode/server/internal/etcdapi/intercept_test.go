package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
)

// A request that panics fails alone, and leaves one line in the log.
func TestRequestThatPanicsDoesNotEndTheProcess(t *testing.T) {
	var log bytes.Buffer
	s := startServer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.onRead = func(context.Context, kvnode.ReadMode) error { panic("broken") }
	get := &pb.RangeRequest{Key: []byte("k")}
	_, unary := s.kv.Range(t.Context(), get)
	_, stream := s.recv(t.Context(), get)
	for _, err := range []error{unary, stream} {
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "broken") {
			t.Errorf("request that panics = %v, want Internal without what it said", err)
		}
	}
	if got := strings.Count(log.String(), "panic=broken"); got != 2 || !strings.Contains(log.String(), "stack=") {
		t.Errorf("log has %d lines of 2 panics:\n%s", got, log.String())
	}
	s.onRead = nil
	if _, err := s.kv.Range(t.Context(), get); err != nil {
		t.Errorf("next request = %v", err)
	}
	if got := s.api.inFlight.Load(); got != 0 {
		t.Errorf("%d requests are counted as under way", got)
	}
}

// Requests above the limit are rejected with the limit in the error, and the others are not
// affected.
func TestRequestsInFlightAreBounded(t *testing.T) {
	s := startServer(t, Config{MaxInFlight: 2})
	enter, leave := make(chan struct{}), make(chan struct{})
	s.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
		select {
		case enter <- struct{}{}:
			<-leave
			return nil
		case <-ctx.Done(): // one too many
			return ctx.Err()
		}
	}
	get := &pb.RangeRequest{Key: []byte("k")}
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.kv.Range(t.Context(), get)
			results <- err
		}()
		<-enter
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.kv.Range(ctx, get)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "2 are under way, which is the limit") {
		t.Errorf("third request = %v, want ResourceExhausted that names the limit", err)
	}
	close(leave)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("request within the limit = %v", err)
		}
	}
	s.onRead = nil
	if _, err := s.kv.Range(t.Context(), get); err != nil {
		t.Errorf("request after the others = %v", err)
	}
}

// Replies that wait for the budget do not count towards MaxInFlight: their requests are done.
func TestWaitingRepliesAreNotInFlight(t *testing.T) {
	s := startServer(t, Config{MaxReplyBytes: 1 << 20, MaxInFlight: 4})
	for i := range 8 {
		s.put(t, fmt.Sprintf("k%d", i), strings.Repeat("v", 256<<10))
	}
	for n := range 12 {
		holding(t, s.conn, pb.KV_Range_FullMethodName, rangeOf("k", 2))
		until(t, "the reply has room or waits", func() bool {
			s.api.replies.mu.Lock()
			defer s.api.replies.mu.Unlock()
			return len(s.api.replies.mu.held)+s.api.replies.mu.queue.Len() == n+1 || s.api.inFlight.Load() >= 4
		})
	}
	if n := s.api.inFlight.Load(); n != 0 {
		t.Errorf("%d requests with waiting replies count as in progress, want none", n)
	}
	if _, err := s.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("x")}); err != nil {
		t.Errorf("Put() beside %d that wait = %v", s.api.replies.waiting(), err)
	}
}

// However long a client would wait, it gets the server's timeout with etcd's error, so that it
// asks another member. A client with a shorter deadline gets its own. A defragmentation has no
// timeout.
func TestRequestsAreBoundedInTime(t *testing.T) {
	const defragment = pb.Maintenance_Defragment_FullMethodName
	for _, c := range []struct {
		name    string
		method  string
		client  time.Duration
		after   time.Duration
		want    error
		timeout time.Duration
	}{
		{"none", "", 0, 5 * time.Second, rpctypes.ErrGRPCTimeout, 5 * time.Second},
		{"none, by default", "", 0, 7 * time.Second, rpctypes.ErrGRPCTimeout, 0},
		{"longer, by default", "", 20 * time.Second, 7 * time.Second, rpctypes.ErrGRPCTimeout, 0},
		{"just longer", "", 5*time.Second + 1, 5 * time.Second, rpctypes.ErrGRPCTimeout, 5 * time.Second},
		{"the same", "", 5 * time.Second, 5 * time.Second, rpctypes.ErrGRPCDeadlineExceeded, 5 * time.Second},
		{"shorter", "", time.Second, time.Second, rpctypes.ErrGRPCDeadlineExceeded, 5 * time.Second},
		{"longer, of a defragmentation", defragment, time.Minute, time.Minute, rpctypes.ErrGRPCDeadlineExceeded, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(newLedNode(), Config{RequestTimeout: c.timeout})
				ctx := t.Context()
				if c.client != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.client)
					defer cancel()
				}
				begun := time.Now()
				_, err := a.interceptUnary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: c.method}, func(ctx context.Context, _ any) (any, error) {
					<-ctx.Done()
					return nil, clientError(ctx.Err())
				})
				wantStatus(t, "request that waits", err, c.want)
				if got := time.Since(begun); got != c.after {
					t.Errorf("it took %v, want %v", got, c.after)
				}
			})
		})
	}
}

// A range stream waits for the cluster no longer than a request, and then streams without a
// limit.
func TestRangeStreamIsAdmittedInTime(t *testing.T) {
	s := startServer(t, Config{RequestTimeout: 50 * time.Millisecond})
	s.put(t, "k", "v")
	s.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	get := &pb.RangeRequest{Key: []byte("k")}
	_, err := s.recv(ctx, get)
	wantStatus(t, "RangeStream without a quorum", err, rpctypes.ErrGRPCTimeout)
	s.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the wait of a RangeStream has no end")
			return nil
		}
		<-ctx.Done() // late, but permitted
		return nil
	}
	if resp, err := s.recv(t.Context(), get); err != nil || len(resp.GetRangeResponse().GetKvs()) != 1 {
		t.Errorf("RangeStream that was permitted = %v, %v, want a key", resp, err)
	}
}

// Only the client limits the work of a member after it was permitted: a large range takes as long
// elsewhere.
func TestPermittedReadsHaveNoTimeout(t *testing.T) {
	s := startServer(t, Config{RequestTimeout: time.Nanosecond})
	list := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: list}}}}
	for _, req := range []any{list, txn} {
		if err := s.call(t.Context(), req); err != nil {
			t.Errorf("%T that takes longer than the request timeout = %v, want nil", req, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.onRead = func(context.Context, kvnode.ReadMode) error {
		cancel()
		return nil
	}
	late := newLazyContext(ctx, time.Now().Add(time.Hour))
	defer late.stop()
	_, err := (&kvServer{API: s.api}).Range(late, list)
	wantStatus(t, "range of a client that has left", err, rpctypes.ErrGRPCCanceled)
}

// As in etcd, a client with a deadline waits for a leader until then. Without one the member
// decides.
func TestClientDeadlineLimitsWaitForLeader(t *testing.T) {
	n := newFakeNode(t)
	a := New(n, Config{RequestTimeout: 7 * time.Second})
	for deadline, want := range map[time.Duration]bool{0: true, 3 * time.Second: false, 30 * time.Second: false} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		_, err := a.handleWithTimeout(ctx, time.Now(), nil, func(ctx context.Context, _ any) (any, error) {
			if got := ctx.Value(kvnode.FailWithoutLeader{}) != nil; got != want {
				t.Errorf("a request with a deadline of %v (0: none) is to fail without a leader: %v, want %v", deadline, got, want)
			}
			return nil, nil
		})
		cancel()
		if err != nil {
			t.Error(err)
		}
	}
}

// lazyContext behaves like any other context.
func TestLazyContextIsAContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		defer cancel()
		c := newLazyContext(parent, time.Now().Add(time.Second))
		defer c.stop()
		if d, ok := c.Deadline(); !ok || time.Until(d) != time.Second {
			t.Errorf("Deadline() = %v, %v", d, ok)
		}
		if c.Err() != nil || c.Value(key{}) != "v" {
			t.Errorf("Err() = %v, Value() = %v", c.Err(), c.Value(key{}))
		}
		child, stop := context.WithCancel(c)
		defer stop()
		if c.Err() != nil || c.Value(key{}) != "v" {
			t.Errorf("Err() = %v, Value() = %v with a child", c.Err(), c.Value(key{}))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !errors.Is(child.Err(), context.DeadlineExceeded) || !errors.Is(c.Err(), context.DeadlineExceeded) {
			t.Errorf("Err() = %v, of a child %v; want DeadlineExceeded", c.Err(), child.Err())
		}
		if got := context.Cause(c); !errors.Is(got, kvnode.ErrTimeout) {
			t.Errorf("Cause() = %v, want %v", got, kvnode.ErrTimeout)
		}

		idle := newLazyContext(parent, time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		if idle.Err() != nil {
			t.Errorf("Err() before the deadline = %v", idle.Err())
		}
		time.Sleep(time.Nanosecond)
		if !errors.Is(idle.Err(), context.DeadlineExceeded) {
			t.Errorf("Err() at the deadline = %v, although Done was not called", idle.Err())
		}
		fresh := newLazyContext(parent, time.Now().Add(time.Second))
		cancel()
		if !errors.Is(fresh.Err(), context.Canceled) {
			t.Errorf("Err() of a request that was cancelled = %v", fresh.Err())
		}
	})
}

// A method that waits for other clients waits as long as its own client does, and does not count
// towards MaxInFlight. A panic and a missing leader end it like any request.
func TestMethodsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newLedNode()
		a := New(node, Config{MaxInFlight: 1, WaitingMethods: []string{"/v3lockpb.Lock/Lock"}})
		call := func(ctx context.Context, method string, handle grpc.UnaryHandler) error {
			_, err := a.interceptUnary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, handle)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				ended <- call(ctx, "/v3lockpb.Lock/Lock", func(ctx context.Context, _ any) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
			}()
		}
		time.Sleep(time.Hour)
		if err := call(ctx, "/v3lockpb.Lock/Unlock", func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Errorf("Unlock() beside two that wait = %v, want nil", err)
		}
		if len(ended) != 0 {
			t.Errorf("Lock() = %v after an hour, want it to wait", <-ended)
		}
		cancel()
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d have ended with their client, want 2", len(ended))
		}

		err := call(t.Context(), "/v3lockpb.Lock/Lock", func(context.Context, any) (any, error) { panic("broken") })
		if status.Code(err) != codes.Internal {
			t.Errorf("Lock() that panics = %v, want Internal", err)
		}
		node.setLeader(0)
		md := metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
		err = call(metadata.NewIncomingContext(t.Context(), md), "/v3lockpb.Lock/Lock", func(context.Context, any) (any, error) { return nil, nil })
		wantStatus(t, "Lock() that requires a leader", err, rpctypes.ErrGRPCNoLeader)
	})
}

// A request that requires a leader is rejected at once without one. The node decides about
// others.
func TestRequestsThatRequireALeaderAreRefusedWithoutOne(t *testing.T) {
	s := startServer(t, Config{})
	require := clientv3.WithRequireLeader(t.Context())
	get := &pb.RangeRequest{Key: []byte("k")}
	if _, err := s.kv.Range(require, get); err != nil {
		t.Errorf("Range under a leader = %v", err)
	}
	s.setLeader(0)
	_, err := s.kv.Range(require, get)
	wantStatus(t, "Range without a leader", err, rpctypes.ErrGRPCNoLeader)
	_, err = s.recv(require, get)
	wantStatus(t, "RangeStream without a leader", err, rpctypes.ErrGRPCNoLeader)
	if _, err := s.kv.Range(t.Context(), get); err != nil {
		t.Errorf("Range that requires no leader = %v", err)
	}
	require = metadata.AppendToOutgoingContext(t.Context(), rpctypes.MetadataRequireLeaderKey, "false")
	if _, err := s.kv.Range(require, get); err != nil {
		t.Errorf("Range with hasleader: false = %v", err)
	}
}

// idleStream is a stream with a handler that only waits for its end.
type idleStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s idleStream) Context() context.Context { return s.ctx }

// ledNode has a leader that tests can take away, and nothing else.
type ledNode struct {
	*fakeNode
}

func newLedNode() ledNode {
	n := &fakeNode{}
	n.mu.changed = make(chan struct{})
	n.leader.Store(1)
	return ledNode{n}
}

// serveIdle runs an idle stream and returns a channel for its error.
func serveIdle(ctx context.Context, n Node, required bool) (ended <-chan error) {
	a := New(n, Config{ElectionTimeout: time.Second})
	if required {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("hasleader", "true"))
	}
	done := make(chan error, 1)
	go func() {
		done <- a.interceptStream(nil, idleStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
			<-ss.Context().Done()
			return ss.Context().Err()
		})
	}()
	return done
}

// A stream that requires a leader survives an election. It ends after three election timeouts
// without a leader, not before.
func TestStreamIsCutWhenThereIsNoLeaderForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLedNode()
		ended := serveIdle(t.Context(), n, true)
		open := func(when string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("stream ended %s: %v", when, err)
			default:
			}
		}
		time.Sleep(time.Minute)
		open("under a leader")
		n.setLeader(2)
		time.Sleep(time.Minute)
		open("under another leader")

		n.setLeader(0)
		time.Sleep(3*time.Second - 1)
		open("during an election")
		n.setLeader(3)
		time.Sleep(time.Minute)
		open("after the election")

		n.setLeader(0)
		time.Sleep(2 * time.Second)
		n.setLeader(0) // a change, but still no leader
		time.Sleep(time.Second - 1)
		open("just before the time is up")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		select {
		case err := <-ended:
			wantStatus(t, "stream", err, rpctypes.ErrGRPCNoLeader)
		default:
			t.Fatal("stream goes on without a leader")
		}
	})
}

// A stream that does not require a leader continues without one. A stream that does ends as usual
// when its client leaves.
func TestStreamsThatRequireNoLeaderGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLedNode()
		ctx, leave := context.WithCancel(t.Context())
		free, bound := serveIdle(ctx, n, false), serveIdle(ctx, n, true)
		time.Sleep(time.Minute)
		leave()
		for name, ended := range map[string]<-chan error{"free": free, "bound": bound} {
			if err := <-ended; err != context.Canceled { //nolint:errorlint // the very error of the handler
				t.Errorf("%s stream ended with %v, want %v", name, err, context.Canceled)
			}
		}
	})
}
