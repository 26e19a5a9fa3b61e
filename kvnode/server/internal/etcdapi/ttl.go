package etcdapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/ttl"
)

// leaseServer implements the Lease service for etcd's client leases. Here they are called TTL
// leases, since they have nothing to do with the leader lease.
type leaseServer struct {
	*API
	pb.UnsafeLeaseServer
}

// ttlOverhead is the quota cost of a TTL lease, as etcd estimates it.
const ttlOverhead = 64

// LeaseGrant creates a TTL lease. It decides everything that would differ between members before
// the request is replicated: a random ID, if the client gives none, and the minimum TTL.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if err := s.checkQuota(ctx, ttlOverhead); err != nil {
		return nil, err
	}
	if r.GetTTL() > store.MaxTTL {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	grant := &pb.LeaseGrantRequest{ID: r.GetID(), TTL: max(r.GetTTL(), s.node.MinTTL())}
	for grant.GetID() == 0 {
		id := randomID()
		if _, used := s.node.Store().TTLLease(id); !used {
			grant.ID = id
		}
	}
	return propose[*pb.LeaseGrantResponse](ctx, s.API, &pb.InternalRaftRequest{LeaseGrant: grant})
}

// randomID returns a positive ID, or rarely 0.
func randomID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]) & math.MaxInt64)
}

// LeaseRevoke ends a TTL lease and deletes its keys.
func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	return propose[*pb.LeaseRevokeResponse](ctx, s.API, &pb.InternalRaftRequest{LeaseRevoke: r})
}

// LeaseTimeToLive returns the remaining time of a TTL lease, which only the leader knows. If the
// lease does not exist, its TTL is -1.
func (s *leaseServer) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	resp, err := leaderRequest[*pb.LeaseTimeToLiveResponse]{
		local: func(ctx context.Context) (*pb.LeaseTimeToLiveResponse, error) { return s.timeToLive(ctx, r) },
		remote: func(ctx context.Context, leader grpc.ClientConnInterface) (*pb.LeaseTimeToLiveResponse, error) {
			return pb.NewLeaseClient(leader).LeaseTimeToLive(ctx, r)
		},
		repeatable: true,
	}.run(ctx, s.API)
	if err != nil {
		return nil, err
	}
	resp.Header = s.header()
	return resp, nil
}

func (s *leaseServer) timeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	left, err := s.node.TTLLeft(ctx, r.GetID())
	if errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
		return &pb.LeaseTimeToLiveResponse{ID: r.GetID(), TTL: -1}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &pb.LeaseTimeToLiveResponse{ID: r.GetID(), TTL: int64(left.Time / time.Second), GrantedTTL: left.TTL}
	if r.GetKeys() {
		resp.Keys = s.node.Store().TTLKeys(r.GetID())
	}
	return resp, nil
}

// LeaseLeases lists the TTL leases by ID. As in etcd, this member answers without a leader: any
// list may be outdated when it arrives. Metadata may ask for a linearizable list.
func (s *leaseServer) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	if err := s.waitForRead(ctx, true); err != nil {
		return nil, err
	}
	resp := &pb.LeaseLeasesResponse{Header: s.header()}
	for _, l := range s.node.Store().TTLLeases() {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.ID})
	}
	return resp, nil
}

// TTLKeeper knows the remaining time of TTL leases. On a member that does not lead, all methods
// except MinTTL fail with kvnode.ErrNotLeader.
type TTLKeeper interface {
	// MinTTL returns the minimum TTL in seconds.
	MinTTL() int64
	// RenewTTL returns the TTL in seconds, or rpctypes.ErrGRPCLeaseNotFound.
	RenewTTL(ctx context.Context, id int64) (int64, error)
	TTLLeft(ctx context.Context, id int64) (ttl.Left, error)
}

// maxRenewals limits the concurrent renewals of one stream. Renewals that wait for a quorum or
// for the leader must not delay the others. Above the limit the stream is not read.
const maxRenewals = 64

// keepAliveStream is the server's end of a keep-alive stream.
type keepAliveStream = grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]

// keepAlives serves one keep-alive stream.
type keepAlives struct {
	*API
	stream keepAliveStream
	ctx    context.Context
	slots  chan struct{}
	work   chan int64    // to an idle worker
	idle   chan struct{} // holds one token while a worker is idle
	ended  chan error    // buffered by one: the first error ends the stream

	sending sync.Mutex
	mu      struct {
		sync.Mutex
		closed  bool // no worker may start
		running sync.WaitGroup
	}
}

// LeaseKeepAlive renews any number of TTL leases on one stream. The answer for a lease that does
// not exist has TTL 0. Answers may come in another order than requests.
func (s *leaseServer) LeaseKeepAlive(stream keepAliveStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	k := &keepAlives{
		API: s.API, stream: stream, ctx: ctx, slots: make(chan struct{}, maxRenewals),
		work: make(chan int64), idle: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	// receive returns when the stream ends, at the latest after this function returns.
	go k.receive()
	var err error
	select {
	case err = <-k.ended:
	case <-ctx.Done():
		err = clientError(ctx.Err())
	}
	if err != nil {
		cancel() // do not send the answers of running workers
	}
	k.drain()
	cancel()
	// The client has closed its side, and one of the last renewals may have failed.
	if err == nil {
		select {
		case err = <-k.ended:
		default:
		}
	}
	return err
}

func (k *keepAlives) receive() {
	defer close(k.work)
	for {
		r, err := k.stream.Recv()
		if errors.Is(err, io.EOF) {
			k.end(nil)
			return
		}
		if err != nil {
			k.end(err)
			return
		}
		if !k.dispatch(r.GetID()) {
			return
		}
	}
}

// dispatch gives a TTL lease to an idle or a new worker. It returns false if the stream has
// ended.
func (k *keepAlives) dispatch(id int64) bool {
	select {
	case k.work <- id:
		return true
	default:
	}
	select {
	case k.work <- id:
		return true
	case k.slots <- struct{}{}:
	case <-k.ctx.Done():
		return false
	}
	if !k.addWorker() {
		return false
	}
	go k.runWorker(id)
	return true
}

func (k *keepAlives) end(err error) {
	select {
	case k.ended <- err:
	default: // the stream is ending
	}
}

func (k *keepAlives) addWorker() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		return false
	}
	k.mu.running.Add(1)
	return true
}

// drain waits for the workers. No answer is sent afterwards.
func (k *keepAlives) drain() {
	k.mu.Lock()
	k.mu.closed = true
	k.mu.Unlock()
	k.mu.running.Wait()
}

// runWorker renews a TTL lease, and then waits for another if no other worker is idle. Growing
// the stack of a new goroutine costs a sixth of a renewal.
func (k *keepAlives) runWorker(id int64) {
	defer k.mu.running.Done()
	defer func() {
		<-k.slots
		if p := recover(); p != nil {
			k.end(k.recoveredError(pb.Lease_LeaseKeepAlive_FullMethodName, p))
		}
	}()
	for more := true; more; {
		k.answer(id)
		select {
		case k.idle <- struct{}{}:
		default:
			return
		}
		select {
		case id, more = <-k.work:
		case <-k.ctx.Done():
			more = false
		}
		<-k.idle
	}
}

func (k *keepAlives) answer(id int64) {
	// Read the header before renewing, or the answer could have a revision at which the lease is
	// already revoked.
	resp := &pb.LeaseKeepAliveResponse{Header: k.header(), ID: id}
	var err error
	if resp.TTL, err = k.renewTTL(id); err != nil {
		k.end(err)
		return
	}
	k.sending.Lock()
	defer k.sending.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	if err := k.stream.Send(resp); err != nil {
		k.end(err)
	}
}

// renewTTL renews a TTL lease, here or on the leader, and returns its TTL.
func (k *keepAlives) renewTTL(id int64) (int64, error) {
	ctx, cancel := context.WithTimeoutCause(k.ctx, k.cfg.RequestTimeout, kvnode.ErrTimeout)
	defer cancel()
	ttl, err := leaderRequest[int64]{
		local: func(ctx context.Context) (int64, error) { return k.node.RenewTTL(ctx, id) },
		remote: func(ctx context.Context, leader grpc.ClientConnInterface) (int64, error) {
			return k.leaderRenewals.renew(ctx, leader, id)
		},
		repeatable: true,
	}.run(ctx, k.API)
	switch {
	case errors.Is(err, rpctypes.ErrGRPCLeaseNotFound):
		return 0, nil
	case err != nil && errors.Is(context.Cause(ctx), kvnode.ErrTimeout) && k.node.Leader() != 0:
		return 0, rpctypes.ErrGRPCTimeout
	default:
		return ttl, err
	}
}
