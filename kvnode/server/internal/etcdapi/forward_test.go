package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// pair is two members. follower forwards to leader the requests that only the leader can answer.
type pair struct {
	follower, leader *server
	dials            chan string  // addresses that the follower dialled
	streams          atomic.Int64 // that the follower has opened to the leader
}

const otherMember = 0xb2

func startPair(t *testing.T) *pair {
	t.Helper()
	return startPairOf(t, Config{})
}

func startPairOf(t *testing.T, leader Config) *pair {
	t.Helper()
	p := &pair{leader: startServer(t, leader), dials: make(chan string, 100)}
	p.follower = startServer(t, Config{RequestTimeout: time.Minute, MemberDialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			p.dials <- addr
			if addr != "leader:2379" {
				return nil, errors.New("connection refused")
			}
			return p.leader.dial(ctx, "")
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			p.streams.Add(1)
			return open(ctx, d, c, method, o...)
		}),
	}})
	t.Cleanup(p.follower.api.Close)
	p.follower.publish("http://gone:2379", "http://leader:2379")
	p.follower.deposed()
	p.follower.setLeader(otherMember)
	return p
}

// publish names the client URLs of the other member.
func (s *server) publish(urls ...string) {
	s.mu.Lock()
	s.mu.index++
	index := s.mu.index
	s.mu.Unlock()
	s.store.ApplyConf(index, testTerm, nil, &store.MemberChange{Set: &store.Member{ID: otherMember}})
	s.apply(&store.Command{Register: &store.Member{ID: otherMember, ClientURLs: urls}})
}

// deposed makes the member answer like one that is not the leader.
func (s *server) deposed() {
	s.ttl.onTTL = func(context.Context, int64) error { return kvnode.ErrNotLeader }
	s.changes.err = kvnode.ErrNotLeader
}

func TestRequestsForTheLeaderAreForwarded(t *testing.T) {
	p := startPair(t)
	p.leader.grant(t, 7, 60)
	if _, err := p.leader.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("a"), Lease: 7}); err != nil {
		t.Fatal(err)
	}
	c := p.follower.client(t)
	for range 20 {
		if ka, err := c.KeepAliveOnce(t.Context(), 7); err != nil || ka.TTL != 60 {
			t.Fatalf("KeepAliveOnce() = %+v, %v, want 60 s", ka, err)
		}
	}
	left, err := pb.NewLeaseClient(p.follower.conn).LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true})
	if err != nil || left.GetTTL() != 59 || len(left.GetKeys()) != 1 {
		t.Errorf("LeaseTimeToLive() = %v, %v, want 59 s and one key", left, err)
	}
	wantHeader(t, "LeaseTimeToLive", left.GetHeader(), 1) // the follower's own
	promoted, err := c.MemberPromote(t.Context(), 5)
	if err != nil || len(p.leader.changes.calls) != 1 {
		t.Fatalf("MemberPromote() = %v, and the leader was asked %q, want once", err, p.leader.changes.calls)
	}
	wantHeader(t, "MemberPromote", promoted.Header, 1)
	if _, err := c.KeepAliveOnce(t.Context(), 8); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("KeepAliveOnce(unknown) = %v, want %v", err, rpctypes.ErrLeaseNotFound)
	}
	p.leader.changes.err = kvnode.ErrLearnerNotReady
	if _, err := c.MemberPromote(t.Context(), 5); !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
		t.Errorf("MemberPromote() = %v, want what the leader says", err)
	}
	if first, second := <-p.dials, <-p.dials; first != "gone:2379" || second != "leader:2379" || len(p.dials) != 0 {
		t.Errorf("dialled %q, %q and %d more, want one connection, to the URL that answers", first, second, len(p.dials))
	}
}

// If two members take each other for the leader, a request is not forwarded in a circle.
func TestForwardedRequestsMakeOneHop(t *testing.T) {
	p := startPair(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), metadataForwarded, "1")
	_, err := pb.NewLeaseClient(p.follower.conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 7})
	wantStatus(t, "a forwarded LeaseTimeToLive on a follower", err, rpctypes.ErrGRPCNotLeader)
	_, err = pb.NewClusterClient(p.follower.conn).MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 7})
	wantStatus(t, "a forwarded MemberPromote on a follower", err, rpctypes.ErrGRPCNotLeader)
	if len(p.dials) != 0 {
		t.Error("the follower has asked another member")
	}
	// The request fails at its deadline and not before: leadership may come back.
	p.leader.deposed()
	const limit = 300 * time.Millisecond
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := pb.NewLeaseClient(p.follower.conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 7}); err == nil || time.Since(begun) < limit {
		t.Errorf("LeaseTimeToLive() = %v after %v without a leader, want an error at the deadline", err, time.Since(begun))
	}
}

// HTTP clients cannot mark a request as forwarded.
func TestGatewayDropsMembersMetadata(t *testing.T) {
	p := startPair(t)
	p.leader.grant(t, 7, 60)
	h, err := p.follower.api.Gateway(t.Context(), p.follower.conn)
	if err != nil {
		t.Fatal(err)
	}
	w := askHeader(t, h, http.MethodPost, "/v3/lease/timetolive", `{"ID":7}`, http.Header{"Grpc-Metadata-X-Kvnode-Forwarded": {"1"}})
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"grantedTTL":"60"`) {
		t.Errorf("POST = %d %s, want the leader's answer", w.Code, w.Body)
	}
}

// A request that arrives while leadership moves waits for the new leader.
func TestForwardingFollowsTheLeader(t *testing.T) {
	p := startPair(t)
	p.leader.grant(t, 7, 60)
	p.follower.setLeader(0)
	answered := make(chan error, 1)
	go func() {
		_, err := p.follower.client(t).KeepAliveOnce(context.Background(), 7)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("KeepAliveOnce() = %v without a leader, want it to wait", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.follower.setLeader(otherMember)
	if err := <-answered; err != nil {
		t.Errorf("KeepAliveOnce() = %v once there is a leader, want nil", err)
	}
	// It moves to this member.
	p.follower.ttl.onTTL = nil
	p.follower.grant(t, 9, 60)
	p.follower.setLeader(testMember)
	if ka, err := p.follower.client(t).KeepAliveOnce(t.Context(), 9); err != nil || ka.TTL != 60 {
		t.Errorf("KeepAliveOnce() = %v, %v on the new leader, want 60 s", ka, err)
	}
}

// The leader is gone, and a member of another cluster has its address. That member does not know
// the TTL lease, and its answer must not be believed.
func TestAnotherClusterDoesNotAnswerForTheLeader(t *testing.T) {
	p := startPair(t)
	p.leader.foreign.Store(true)
	lease := pb.NewLeaseClient(p.follower.conn)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if left, err := lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 7}); err == nil {
		t.Errorf("LeaseTimeToLive() = %v by another cluster's word, want an error", left)
	}
	answered := make(chan error, 1)
	go func() {
		ka, err := p.follower.client(t).KeepAliveOnce(context.Background(), 7)
		if err == nil && ka.TTL != 60 {
			err = fmt.Errorf("TTL %d", ka.TTL)
		}
		answered <- err
	}()
	<-p.dials // it has asked
	p.leader.grant(t, 7, 60)
	p.leader.foreign.Store(false)
	if err := <-answered; err != nil {
		t.Errorf("KeepAliveOnce() = %v once the leader answers, want 60 s", err)
	}
}

// Errors of another cluster's member do not count either, although errors have no header.
func TestAnotherClustersErrorsAreNotTheLeaders(t *testing.T) {
	p := startPair(t)
	p.leader.foreign.Store(true)
	p.leader.changes.err = kvnode.ErrMemberNotFound
	p.leader.ttl.onTTL = func(context.Context, int64) error { return kvnode.ErrTooLarge }
	conn, err := p.follower.api.leader.connect(p.follower.api, otherMember)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pb.NewClusterClient(conn).MemberPromote(t.Context(), &pb.MemberPromoteRequest{ID: 5}); !errors.Is(err, errNoMember) {
		t.Errorf("MemberPromote() = %v by another cluster's word, want %v", err, errNoMember)
	}
	if _, err := p.follower.api.leaderRenewals.renew(t.Context(), conn, 7); !errors.Is(err, errNoMember) {
		t.Errorf("a keep-alive = %v by another cluster's word, want %v", err, errNoMember)
	}
	p.leader.foreign.Store(false)
	if _, err := pb.NewClusterClient(conn).MemberPromote(t.Context(), &pb.MemberPromoteRequest{ID: 5}); !errors.Is(err, rpctypes.ErrGRPCMemberNotFound) {
		t.Errorf("MemberPromote() = %v, want what the leader says, %v", err, rpctypes.ErrGRPCMemberNotFound)
	}
}

// A partitioned leader does not answer. The request goes to its successor.
func TestAForwardedRequestIsNotStuckWithTheOldLeader(t *testing.T) {
	p := startPair(t)
	p.leader.grant(t, 7, 60)
	asked, left := make(chan struct{}, 10), make(chan time.Duration, 10)
	p.leader.ttl.onTTL = func(ctx context.Context, _ int64) error {
		asked <- struct{}{}
		<-ctx.Done()
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return ctx.Err()
	}
	answered := make(chan error, 1)
	go func() {
		_, err := p.follower.client(t).KeepAliveOnce(context.Background(), 8)
		answered <- err
	}()
	<-asked
	p.follower.ttl.onTTL = nil
	p.follower.setLeader(testMember)
	if err := <-answered; !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("KeepAliveOnce() = %v, want the new leader's answer", err)
	}
	if n := <-left; n < time.Second {
		t.Errorf("the old leader was waited for until %v before the request's deadline, want not at all", n)
	}
}

// Opening a stream costs as much as a keep-alive, so the keep-alives of a client share one until
// it fails.
func TestKeepAlivesShareAStreamToTheLeader(t *testing.T) {
	p := startPair(t)
	p.leader.grant(t, 7, 60)
	stream, err := pb.NewLeaseClient(p.follower.conn).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	renew := func(want int64) {
		t.Helper()
		for range 20 {
			if got := keepAll(t, stream, 7); got[7] != 60 {
				t.Fatalf("keep-alives are answered %v, want 60 s", got)
			}
		}
		if n := p.streams.Load(); n != want {
			t.Errorf("%d streams to the leader, want %d", n, want)
		}
	}
	renew(1)
	// The leader ends it: the next keep-alive is answered all the same.
	fail := make(chan struct{}, 1)
	fail <- struct{}{}
	p.leader.ttl.onTTL = func(context.Context, int64) error {
		select {
		case <-fail:
			return kvnode.ErrStopped
		default:
			return nil
		}
	}
	renew(2)
}

// The leader limits the streams of a connection. Idle streams of clients do not use them up, nor
// do streams of a burst for long.
func TestIdleKeepAlivesLeaveRoom(t *testing.T) {
	p := startPairOf(t, Config{MaxConcurrentStreams: 4})
	p.leader.grant(t, 7, 60)
	var bursts, met sync.WaitGroup
	met.Add(4)
	p.leader.ttl.onTTL = func(context.Context, int64) error {
		met.Done()
		met.Wait() // all at once
		return nil
	}
	open := func() pb.Lease_LeaseKeepAliveClient {
		stream, err := pb.NewLeaseClient(p.follower.conn).LeaseKeepAlive(t.Context())
		if err != nil {
			t.Error(err)
		}
		return stream
	}
	for range 4 {
		bursts.Go(func() { keepAll(t, open(), 7) })
	}
	bursts.Wait()
	p.leader.ttl.onTTL = nil
	for range 12 { // each stays open
		if got := keepAll(t, open(), 7); got[7] != 60 {
			t.Fatalf("a keep-alive is answered %v, want 60 s", got)
		}
	}
	if _, err := pb.NewLeaseClient(p.follower.conn).LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 7}); err != nil {
		t.Errorf("LeaseTimeToLive() = %v beside idle keep-alives, want it answered", err)
	}
}

func TestAfterCloseNothingIsForwarded(t *testing.T) {
	p := startPair(t)
	p.follower.api.Close()
	_, err := pb.NewLeaseClient(p.follower.conn).LeaseTimeToLive(t.Context(), &pb.LeaseTimeToLiveRequest{ID: 7})
	wantStatus(t, "LeaseTimeToLive() after Close", err, rpctypes.ErrGRPCStopped)
}

// If a member answers that it is not the leader or is overloaded, its cluster is not verified,
// since that would add to its load during an election.
func TestErrorsWithoutOriginCheck(t *testing.T) {
	for _, want := range []error{
		rpctypes.ErrGRPCNotLeader, status.Error(codes.ResourceExhausted, "kvnode: too many requests"), rpctypes.ErrGRPCTimeout,
	} {
		// There is no connection to ask on.
		if got := verifyOrigin(t.Context(), pb.Lease_LeaseTimeToLive_FullMethodName, nil, want); !errors.Is(got, want) {
			t.Errorf("verifyOrigin() = %v, want %v unchanged", got, want)
		}
	}
}
