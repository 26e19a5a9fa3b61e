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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

// Requests beyond the limit are refused with the limit in the text, and those
// before it are not disturbed.
func TestRequestsUnderWayAreBounded(t *testing.T) {
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

// Those whose replies wait for room, as others do not take theirs, keep out nobody
// else: their work is done.
func TestRepliesThatWaitAreNotUnderWay(t *testing.T) {
	s := startServer(t, Config{MaxReplyBytes: 1 << 20, MaxInFlight: 4})
	for i := range 8 {
		s.put(t, fmt.Sprintf("k%d", i), strings.Repeat("v", 256<<10))
	}
	for n := range 12 {
		holding(t, s.conn, pb.KV_Range_FullMethodName, rangeOf("k", 2))
		until(t, "the reply has room or waits", func() bool {
			s.api.replies.mu.Lock()
			defer s.api.replies.mu.Unlock()
			return len(s.api.replies.mu.held)+s.api.replies.mu.line.Len() == n+1 || s.api.inFlight.Load() >= 4
		})
	}
	if n := s.api.inFlight.Load(); n != 0 {
		t.Errorf("%d requests are counted as under way whose replies wait, want none", n)
	}
	if _, err := s.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("x")}); err != nil {
		t.Errorf("Put() beside %d that wait = %v", s.api.replies.waiting(), err)
	}
}

// However long a client would wait, it gets the server's deadline, and etcd's
// error for it, so that it asks another member; one that waits less has its way.
// A defragmentation takes as long as there is to copy.
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

// A stream of a range waits for the cluster no longer than a request, and then
// streams for as long as it takes.
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
		}
		time.Sleep(60 * time.Millisecond) // late, but permitted
		return nil
	}
	if resp, err := s.recv(t.Context(), get); err != nil || len(resp.GetRangeResponse().GetKvs()) != 1 {
		t.Errorf("RangeStream that was permitted = %v, %v, want a key", resp, err)
	}
}

// What a member does by itself after it was permitted is the client's to bound: a
// large range is as slow elsewhere.
func TestWhatIsAdmittedTakesItsTime(t *testing.T) {
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
	late := newLateContext(ctx, time.Now().Add(time.Hour))
	defer late.release()
	_, err := (&kvServer{API: s.api}).Range(late, list)
	wantStatus(t, "range whose client has gone", err, rpctypes.ErrGRPCCanceled)
}

// A client that has set a deadline waits for a leader until then, as with etcd. Of one that has
// set none the member decides.
func TestADeadlineSaysForHowLongToWaitForALeader(t *testing.T) {
	n := newFakeNode(t)
	a := New(n, Config{RequestTimeout: 7 * time.Second})
	for deadline, want := range map[time.Duration]bool{0: true, 3 * time.Second: false, 30 * time.Second: false} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		_, err := a.inTime(ctx, time.Now(), nil, func(ctx context.Context, _ any) (any, error) {
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

// lateContext is a context like any other.
func TestLateContextIsAContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		defer cancel()
		c := newLateContext(parent, time.Now().Add(time.Second))
		defer c.release()
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

		idle := newLateContext(parent, time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		if idle.Err() != nil {
			t.Errorf("Err() before the deadline = %v", idle.Err())
		}
		time.Sleep(time.Nanosecond)
		if !errors.Is(idle.Err(), context.DeadlineExceeded) {
			t.Errorf("Err() at the deadline = %v, although nobody asked for Done", idle.Err())
		}
		fresh := newLateContext(parent, time.Now().Add(time.Second))
		cancel()
		if !errors.Is(fresh.Err(), context.Canceled) {
			t.Errorf("Err() of a request that was cancelled = %v", fresh.Err())
		}
	})
}
