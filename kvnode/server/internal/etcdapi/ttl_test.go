package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/ttl"
)

// fakeTTL is what a fake node says about TTL leases. Those of its store have all
// their time left.
type fakeTTL struct {
	// onTTL, if set, runs first and may fail the request.
	onTTL func(ctx context.Context, id int64) error
}

// MinTTL implements Node.
func (n *fakeNode) MinTTL() int64 { return 2 }

// RenewTTL implements Node.
func (n *fakeNode) RenewTTL(ctx context.Context, id int64) (int64, error) {
	left, err := n.TTLLeft(ctx, id)
	return left.TTL, err
}

// TTLLeft implements Node.
func (n *fakeNode) TTLLeft(ctx context.Context, id int64) (ttl.Left, error) {
	if n.ttl.onTTL != nil {
		if err := n.ttl.onTTL(ctx, id); err != nil {
			return ttl.Left{}, err
		}
	}
	l, ok := n.store.TTLLease(id)
	if !ok {
		return ttl.Left{}, rpctypes.ErrGRPCLeaseNotFound
	}
	return ttl.Left{TTLLease: l, Time: time.Duration(l.TTL)*time.Second - time.Millisecond}, nil
}

func (s *server) grant(tb testing.TB, id, ttl int64) *pb.LeaseGrantResponse {
	tb.Helper()
	resp, err := pb.NewLeaseClient(s.conn).LeaseGrant(tb.Context(), &pb.LeaseGrantRequest{ID: id, TTL: ttl})
	if err != nil {
		tb.Fatalf("LeaseGrant(%d, %d s) = %v", id, ttl, err)
	}
	return resp
}

func TestLeaseGrantChoosesIDAndTTL(t *testing.T) {
	s := startServer(t, Config{})
	c := pb.NewLeaseClient(s.conn)
	if g := s.grant(t, 7, 1); g.GetID() != 7 || g.GetTTL() != 2 {
		t.Errorf("LeaseGrant(7, 1 s) = %v, want ID 7 and the shortest TTL, 2 s", g)
	}
	seen := map[int64]bool{}
	for range 50 {
		g := s.grant(t, 0, 60)
		if g.GetID() <= 0 || seen[g.GetID()] || g.GetTTL() != 60 {
			t.Errorf("LeaseGrant(0, 60 s) = %v, want a new positive ID and 60 s", g)
		}
		seen[g.GetID()] = true
		wantHeader(t, "LeaseGrant", g.GetHeader(), 1)
	}
	_, err := c.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: 7, TTL: 5})
	wantStatus(t, "LeaseGrant(ID in use)", err, rpctypes.ErrGRPCLeaseExist)
	_, err = c.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{TTL: store.MaxTTL + 1})
	wantStatus(t, "LeaseGrant(too long)", err, rpctypes.ErrGRPCLeaseTTLTooLarge)
	_, err = c.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: 8})
	wantStatus(t, "LeaseRevoke(unknown)", err, rpctypes.ErrGRPCLeaseNotFound)
	_, err = s.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("a"), Lease: 8})
	wantStatus(t, "Put under an unknown TTL lease", err, rpctypes.ErrGRPCLeaseNotFound)
}

func TestTheTTLLeaseServiceThroughAClient(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	s.grant(t, 7, 60)
	s.grant(t, 3, 60)
	for _, key := range []string{"b", "a"} {
		if _, err := c.Put(t.Context(), key, "", clientv3.WithLease(7)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		id   clientv3.LeaseID
		opts []clientv3.LeaseOption
		want string
	}{
		{7, []clientv3.LeaseOption{clientv3.WithAttachedKeys()}, "59 s of 60 with [a b]"},
		{7, nil, "59 s of 60 with []"},
		{8, nil, "-1 s of 0 with []"}, // it does not exist
	} {
		left, err := c.TimeToLive(t.Context(), test.id, test.opts...)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d s of %d with %s", left.TTL, left.GrantedTTL, left.Keys); got != test.want {
			t.Errorf("TimeToLive(%d) = %s, want %s", test.id, got, test.want)
		}
		wantHeader(t, "TimeToLive", left.ResponseHeader, 3)
	}
	all, err := c.Leases(t.Context())
	if err != nil || len(all.Leases) != 2 || all.Leases[0].ID != 3 || all.Leases[1].ID != 7 {
		t.Errorf("Leases() = %+v, %v, want 3 and 7", all, err)
	}
	if resp, err := c.Revoke(t.Context(), 7); err != nil || resp.Header.GetRevision() != 4 {
		t.Errorf("Revoke(7) = %+v, %v, want revision 4", resp, err)
	}
	if _, err := c.KeepAliveOnce(t.Context(), 7); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("KeepAliveOnce(7) = %v after it was revoked, want %v", err, rpctypes.ErrLeaseNotFound)
	}
	if ka, err := c.KeepAliveOnce(t.Context(), 3); err != nil || ka.TTL != 60 {
		t.Errorf("KeepAliveOnce(3) = %+v, %v, want 60 s", ka, err)
	}
}

// As in etcd, a member without a leader lists the TTL leases that it knows, unless metadata asks
// for a linearizable list.
func TestTTLLeasesAreListedWithoutALeader(t *testing.T) {
	s := startServer(t, Config{RequestTimeout: time.Second})
	s.grant(t, 7, 60)
	s.setLeader(0)
	s.onRead = func(_ context.Context, mode kvnode.ReadMode) error {
		if mode != kvnode.ReadSerializable {
			return kvnode.ErrNoLeader
		}
		return nil
	}
	c := pb.NewLeaseClient(s.conn)
	all, err := c.LeaseLeases(t.Context(), &pb.LeaseLeasesRequest{})
	if err != nil || len(all.GetLeases()) != 1 || all.GetLeases()[0].GetID() != 7 {
		t.Errorf("LeaseLeases() without a leader = %v, %v, want 7", all, err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), fastwire.MetadataReadMode, "read-index")
	_, err = c.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	wantStatus(t, "LeaseLeases() by read-index without a leader", err, rpctypes.ErrGRPCNoLeader)
}

// keepAll sends keep-alives on a stream and returns the TTLs of the answers by ID.
func keepAll(t *testing.T, stream pb.Lease_LeaseKeepAliveClient, ids ...int64) map[int64]int64 {
	t.Helper()
	for _, id := range ids {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[int64]int64{}
	for range ids {
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got[resp.GetID()] = resp.GetTTL()
	}
	return got
}

// A keep-alive that waits does not delay others on its stream, and one of an unknown TTL lease
// does not end it.
func TestKeepAlivesOfOneStreamAreIndependent(t *testing.T) {
	s := startServer(t, Config{})
	released := make(chan struct{})
	s.ttl.onTTL = func(ctx context.Context, id int64) error {
		if id != 1 {
			return nil
		}
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var ids []int64
	s.grant(t, 1, 60)
	for id := int64(2); id <= 500; id++ {
		s.grant(t, id, 60)
		ids = append(ids, id)
	}
	stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}); err != nil {
		t.Fatal(err)
	}
	got := keepAll(t, stream, append(ids, 9999)...)
	if some := [4]int64{int64(len(got)), got[2], got[500], got[9999]}; some != [4]int64{500, 60, 60, 0} {
		t.Errorf("number of answers, the first, the last and that for the unknown = %d, want 500, 60, 60, 0", some)
	}
	// Pending keep-alives are answered after the client has closed its side.
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(released) })
	if resp, err := stream.Recv(); err != nil || resp.GetID() != 1 || resp.GetTTL() != 60 {
		t.Errorf("Recv() = %v, %v, want the answer that waited", resp, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("Recv() at the end = %v, want EOF", err)
	}
}

// A keep-alive that fails ends the stream, so that the client tries another member.
func TestAKeepAliveThatFailsEndsTheStream(t *testing.T) {
	for _, c := range []struct {
		name       string
		from, want error
		timeout    time.Duration
	}{
		{"stopped", kvnode.ErrStopped, rpctypes.ErrGRPCStopped, time.Minute},
		{"no answer in time", context.DeadlineExceeded, rpctypes.ErrGRPCTimeout, 50 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, Config{RequestTimeout: c.timeout})
			s.ttl.onTTL = func(ctx context.Context, _ int64) error {
				if errors.Is(c.from, context.DeadlineExceeded) {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.from
			}
			stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 1}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			wantStatus(t, "LeaseKeepAlive", err, c.want)
		})
	}
}

// A client that disconnects leaves no goroutine behind; goleak checks it.
func TestCancelledKeepAliveStream(t *testing.T) {
	s := startServer(t, Config{})
	s.ttl.onTTL = func(ctx context.Context, _ int64) error {
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := pb.NewLeaseClient(s.conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(200) { // more than may be under way
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id + 1}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("Recv() = %v, want Canceled", err)
	}
}
