package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// The metadata selects the read mode and overrides the request's own flag. The trailers report
// how the read was served.
func TestMetadataChoosesHowToRead(t *testing.T) {
	for _, c := range []struct {
		asked        string
		serializable bool
		want         kvnode.ReadMode
		path         string
	}{
		{"", false, kvnode.ReadAuto, "lease"},
		{"", true, kvnode.ReadSerializable, "serializable"},
		{"auto", false, kvnode.ReadAuto, "lease"},
		{"auto", true, kvnode.ReadSerializable, "serializable"},
		{"lease", false, kvnode.ReadLease, "lease"},
		{"read-index", false, kvnode.ReadIndex, "read_index"},
		{"read-index", true, kvnode.ReadIndex, "read_index"},
		{"log", false, kvnode.ReadLog, "log"},
		{"serializable", false, kvnode.ReadSerializable, "serializable"},
	} {
		t.Run(c.asked, func(t *testing.T) {
			s := startServer(t, Config{})
			ctx := t.Context()
			if c.asked != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, c.asked)
			}
			var trailer metadata.MD
			_, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: c.serializable}, grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.lastMode(t); got != c.want {
				t.Errorf("mode = %v, want %v", got, c.want)
			}
			if got := strings.Join(trailer.Get(fastwire.TrailerReadPath), ","); got != c.path {
				t.Errorf("trailer %s = %q, want %q", fastwire.TrailerReadPath, got, c.path)
			}
			remaining := ""
			if c.path == "lease" {
				remaining = "850"
			}
			if got := strings.Join(trailer.Get(fastwire.TrailerRemaining), ","); got != remaining {
				t.Errorf("trailer %s = %q, want %q", fastwire.TrailerRemaining, got, remaining)
			}
		})
	}
}

// With TrailersOnDemand only requests with the metadata get trailers, also for auto.
func TestTrailersOnDemand(t *testing.T) {
	s := startServer(t, Config{TrailersOnDemand: true})
	for asked, want := range map[string]string{"": "", "auto": "lease", "log": "log"} {
		ctx := t.Context()
		if asked != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, asked)
		}
		var trailer metadata.MD
		if _, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")}, grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(trailer.Get(fastwire.TrailerReadPath), ","); got != want {
			t.Errorf("trailer %s of a request that asked for %q = %q, want %q", fastwire.TrailerReadPath, asked, got, want)
		}
	}
}

// An unknown read mode, or two modes, is InvalidArgument, and the error has the value.
func TestUnknownReadModeIsNamed(t *testing.T) {
	s := startServer(t, Config{})
	for _, asked := range [][]string{{"fast"}, {""}, {"Lease"}, {"lease", "log"}} {
		ctx := t.Context()
		for _, v := range asked {
			ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, v)
		}
		_, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		text := status.Convert(err).Message()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(text, strings.Join(asked, ", ")) ||
			!strings.Contains(text, "auto, lease, read-index, log or serializable") {
			t.Errorf("Range in mode %q = %v, want InvalidArgument that names it and the choices", asked, err)
		}
	}
	if len(s.mu.modes) != 0 {
		t.Errorf("node was asked for reads %v", s.mu.modes)
	}
}

// A read sees a write that happens while it waits for permission: the value is read afterwards.
func TestValueIsFetchedAfterAdmission(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(*server) (string, error)
	}{
		{"get", func(s *server) (string, error) { return s.valueOf(&pb.RangeRequest{Key: []byte("k")}) }},
		{"range", func(s *server) (string, error) {
			return s.valueOf(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		}},
		{"stream", func(s *server) (string, error) {
			r, err := s.recv(context.Background(), &pb.RangeRequest{Key: []byte("k")})
			return value(r.GetRangeResponse()), err
		}},
		{"txn", func(s *server) (string, error) {
			r, err := s.kv.Txn(context.Background(), &pb.TxnRequest{Success: ops(opGet("k"))})
			if err != nil {
				return "", err
			}
			return value(r.GetResponses()[0].GetResponseRange()), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, Config{})
			s.put(t, "k", "old")
			s.onRead = func(context.Context, kvnode.ReadMode) error {
				s.apply(&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("new")}}})
				return nil
			}
			if got, err := c.read(s); err != nil || got != "new" {
				t.Errorf("%s = %q, %v; want what was written before it was permitted", c.name, got, err)
			}
		})
	}
}

func (s *server) valueOf(r *pb.RangeRequest) (string, error) {
	resp, err := s.kv.Range(context.Background(), r)
	return value(resp), err
}

func value(r *pb.RangeResponse) string {
	if len(r.GetKvs()) == 0 {
		return ""
	}
	return string(r.GetKvs()[0].GetValue())
}

// Trailers are correct for every remaining time, cached or not.
func TestTrailersOfEveryRemainingTime(t *testing.T) {
	for _, c := range []struct {
		read kvnode.Read
		want string
	}{
		{kvnode.Read{Path: "lease"}, "0"},
		{kvnode.Read{Path: "lease", Remaining: -1}, "0"},
		{kvnode.Read{Path: "lease", Remaining: 4095e6}, "4095"},
		{kvnode.Read{Path: "lease", Remaining: 4096e6}, "4096"},
		{kvnode.Read{Path: "lease", Remaining: 4096e6}, "4096"},
		{kvnode.Read{Path: "joined"}, ""},
		{kvnode.Read{Path: "something new"}, ""},
	} {
		md := readTrailer(c.read)
		if got := strings.Join(md[fastwire.TrailerRemaining], ","); got != c.want {
			t.Errorf("trailer(%v) has %q remaining, want %q", c.read, got, c.want)
		}
		if got := md[fastwire.TrailerReadPath]; len(got) != 1 || got[0] != c.read.Path {
			t.Errorf("trailer(%v) has path %q", c.read, got)
		}
	}
}

// After a start, everything that a member answers alone waits until its store has all that it had
// acknowledged.
func TestNothingIsAnsweredBeforeTheLogIsApplied(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "k", "v")
	s.onRead = func(_ context.Context, m kvnode.ReadMode) error {
		if m == kvnode.ReadSerializable {
			return kvnode.ErrTimeout // the log is not applied yet
		}
		return nil
	}
	s.onReplay = func(context.Context) error { return kvnode.ErrTimeout }
	get := &pb.RangeRequest{Key: []byte("k"), Serializable: true}
	maintenance := pb.NewMaintenanceClient(s.conn)
	for what, ask := range map[string]func(ctx context.Context) error{
		"Range": func(ctx context.Context) error { _, err := s.kv.Range(ctx, get); return err },
		"RangeStream": func(ctx context.Context) error {
			_, err := s.recv(ctx, get)
			return err
		},
		"Txn": func(ctx context.Context) error {
			op := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get}}
			_, err := s.kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
			return err
		},
		"MemberList": func(ctx context.Context) error {
			_, err := pb.NewClusterClient(s.conn).MemberList(ctx, &pb.MemberListRequest{})
			return err
		},
		"LeaseLeases": func(ctx context.Context) error {
			_, err := pb.NewLeaseClient(s.conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			return err
		},
		"Hash":   func(ctx context.Context) error { _, err := maintenance.Hash(ctx, &pb.HashRequest{}); return err },
		"HashKV": func(ctx context.Context) error { _, err := maintenance.HashKV(ctx, &pb.HashKVRequest{}); return err },
		"Snapshot": func(ctx context.Context) error {
			stream, err := maintenance.Snapshot(ctx, &pb.SnapshotRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"Watch": func(ctx context.Context) error {
			stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			// A watch that is accepted sends nothing.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			wantStatus(t, what, ask(ctx), rpctypes.ErrGRPCTimeout)
		})
	}
}

// Status and liveness do not wait for the log: a waiting member must not be restarted for it, and
// the status must show why it waits.
func TestStatusDoesNotWaitForReplay(t *testing.T) {
	s := startServer(t, Config{})
	replaying(s.fakeNode)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := pb.NewMaintenanceClient(s.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil || !slices.ContainsFunc(got.GetErrors(), func(e string) bool { return strings.Contains(e, "still applies its log") }) {
		t.Errorf("Status() = %v, %v, want it to say what it waits for", got, err)
	}
	for _, path := range []string{"/livez", "/livez/serializable_read", "/health?serializable=true"} {
		if code, body := ask(t, s.api.Handler(), http.MethodGet, path, ""); code != http.StatusOK {
			t.Errorf("GET %s = %d %s, want 200", path, code, body)
		}
	}
	s.replays.Store(false)
	got, err = pb.NewMaintenanceClient(s.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil || len(got.GetErrors()) > 0 {
		t.Errorf("Status() of a member that waits for nothing = %v, %v, want no errors", got, err)
	}
}

// RequestTimeout does not limit a watch's wait for the log. If the member stops meanwhile, the
// watch ends with Unavailable: after Canceled clientv3 closes the channel, otherwise it continues
// at another member.
func TestAWatchWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLedNode()
		n.onReplay = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		n.onRead = func(context.Context, kvnode.ReadMode) error {
			time.Sleep(7 * time.Second)
			return kvnode.ErrNoLeader // as after RequestTimeout
		}
		a := New(n, Config{})
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- a.interceptStream(nil, idleStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
				return (&watchServer{API: a}).Watch(&grpc.GenericServerStream[pb.WatchRequest, pb.WatchResponse]{ServerStream: ss})
			})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("Watch() = %v after a minute, want it to wait for the log", <-ended)
		}
		stop(rpctypes.ErrGRPCStopped)
		wantStatus(t, "Watch() at a member that stops", <-ended, errStopping)
	})
}

// However a handler returns the end of its context, a stream that the member has ended has the
// member's reason, and one that its client has ended the client's.
func TestAStreamThatIsEndedSaysWhy(t *testing.T) {
	a := New(newLedNode(), Config{})
	for name, handled := range map[string]error{
		"the context's error": context.Canceled, "the API's": rpctypes.ErrGRPCCanceled, "a watch's": rpctypes.ErrGRPCWatchCanceled,
		"gRPC's": status.FromContextError(context.Canceled).Err(), "a wrapped one": fmt.Errorf("send: %w", context.Canceled),
	} {
		t.Run(name, func(t *testing.T) {
			end := func(cause error) error {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(cause)
				return a.interceptStream(nil, idleStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(any, grpc.ServerStream) error { return handled })
			}
			wantStatus(t, "a stream that the member has ended", end(rpctypes.ErrGRPCStopped), errStopping)
			if err := end(nil); !errors.Is(err, handled) {
				t.Errorf("a stream that its client has ended = %v, want %v", err, handled)
			}
		})
	}
}
