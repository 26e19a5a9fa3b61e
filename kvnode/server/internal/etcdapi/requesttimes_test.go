package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// slowRig is an API that keeps its log. Its requests take as long as the test says.
type slowRig struct {
	*API
	log bytes.Buffer
}

func newSlowRig(t *testing.T, cfg Config) *slowRig {
	t.Helper()
	r := &slowRig{}
	cfg.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	r.API = New(newFakeNode(t), cfg)
	return r
}

// lines returns the log lines of a request that takes this long.
func (r *slowRig) lines(t *testing.T, req, resp any, err error, took time.Duration) string {
	t.Helper()
	r.log.Reset()
	synctest.Test(t, func(t *testing.T) {
		_, _ = r.interceptUnary(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/etcdserverpb.KV/X"}, func(context.Context, any) (any, error) {
			time.Sleep(took)
			return resp, err
		})
	})
	return r.log.String()
}

// Requests are logged above etcd's limits, reads earlier than writes, and never with values.
func TestSlowRequestsAreLogged(t *testing.T) {
	put := &pb.PutRequest{Key: []byte("k\x1b"), Value: []byte("secret")}
	get := &pb.RangeRequest{Key: []byte("k")}
	kvs := &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("k"), Value: []byte("secret")}}, Count: 5}
	readTxn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}}}
	for _, tc := range []struct {
		name      string
		req, resp any
		err       error
		took      time.Duration
		want      []string // none: no line
	}{
		{"a write at the limit", put, &pb.PutResponse{}, nil, 300 * time.Millisecond, nil},
		{"a write above it", put, &pb.PutResponse{}, nil, 301 * time.Millisecond, []string{
			`msg="request took too long"`, "took=301ms", "expected-duration=300ms", "method=/etcdserverpb.KV/X",
			`request="put key=\"k\\x1b\" value_size=6"`, "request-size=12", "response-size=0",
		}},
		{"a read at the limit", get, kvs, nil, 100 * time.Millisecond, nil},
		{"a read above it", get, kvs, nil, 101 * time.Millisecond, []string{
			`msg="read-only request took too long"`, "took=101ms", "expected-duration=100ms", `request="range key=\"k\""`, "response-count=1", "response-size=",
		}},
		{"a transaction that reads", readTxn, &pb.TxnResponse{}, nil, 101 * time.Millisecond, []string{"read-only", "txn compares=0"}},
		{"a failure", put, nil, errors.New("no quorum"), time.Second, []string{"took=1s", `error="no quorum"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newSlowRig(t, Config{})
			got := r.lines(t, tc.req, tc.resp, tc.err, tc.took)
			if (got == "") != (tc.want == nil) || strings.Contains(got, "secret") {
				t.Errorf("logged %q", got)
			}
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("logged %q, want %s in it", got, want)
				}
			}
		})
	}
}

// At most ten lines are logged at once: if one request is slow, most are.
func TestSlowRequestsDoNotFillTheLog(t *testing.T) {
	r := newSlowRig(t, Config{WarnRead: time.Millisecond})
	n := 0
	for range 30 {
		n += strings.Count(r.lines(t, &pb.RangeRequest{Key: []byte("k")}, &pb.RangeResponse{}, nil, 2*time.Millisecond), "\n")
	}
	if s := r.RequestStats(); n != 10 || s.Slow != 30 {
		t.Errorf("%d lines and %d counted of 30 slow reads at once, want 10 and 30", n, s.Slow)
	}
}

// Ranges and transactions are counted as in etcd, and durations by operation.
func TestRequestsAreCounted(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "k", "v")
	get := &pb.RangeRequest{Key: []byte("k")}
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get}}
	for range 3 {
		if _, err := s.kv.Range(t.Context(), get); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Revision: 99}); err == nil {
		t.Fatal("a read of the future = nil, want an error")
	}
	if _, err := s.kv.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{op, op}}); err != nil {
		t.Fatal(err)
	}
	stats := s.api.RequestStats()
	got := map[string]uint64{}
	for _, o := range stats.Times {
		name := o.Op
		if !o.Success {
			name += " failed"
		}
		got[name] = o.Count
	}
	if got["Put"] != 1 || got["Range"] != 3 || got["Range failed"] != 1 || got["ReadonlyTxn"] != 1 || len(got) != 4 {
		t.Errorf("requests = %v, want a put, three ranges and one that failed, and a transaction that reads", got)
	}
	if stats.Ranges != 6 || stats.Txns != 1 {
		t.Errorf("%d ranges and %d transactions, want 6 and 1", stats.Ranges, stats.Txns)
	}
}
