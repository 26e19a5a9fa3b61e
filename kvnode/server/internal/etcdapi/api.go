package etcdapi

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
)

const (
	// messageOverhead is the number of bytes by which a message may exceed MaxRequestBytes.
	messageOverhead = 512 << 10
	// maxHeaderBytes limits the metadata of one request.
	maxHeaderBytes = 64 << 10
	// streamWorkers is the number of goroutines that gRPC keeps for requests. Their stacks have
	// grown already; growing a new stack takes a fifth of the CPU time of a read. When all
	// workers are busy, each request gets its own goroutine. Too few workers are all taken by
	// writes, which wait for the log. Each costs about 10 KiB.
	streamWorkers = 256
)

// API serves the etcd v3 API. Close ends the goroutines of its connection to the leader. All
// other goroutines end with their request.
type API struct {
	node Node
	cfg  Config

	// leader is the connection for requests that only the leader can answer.
	leader         leaderConn
	leaderField    fastwire.LeaderField
	leaderRenewals renewalForwarder
	// replies limits the memory of large replies.
	replies         *replyBudget
	gatewayRequests gatewayRequests
	// inFlight counts the unary requests in progress.
	inFlight atomic.Int64
	fast     fastLimits
	stats    requestStats
	// logLimit limits the log lines caused by requests.
	logLimit rate.Sometimes
}

// New returns the API of node. cfg must be valid (see Config.Validate).
func New(node Node, cfg Config) *API {
	cfg = cfg.WithDefaults().withNodeDefaults(node.Config())
	cfg.Logger = cfg.Logger.With("component", "etcdapi")
	a := &API{
		node: node, cfg: cfg, leaderRenewals: newRenewalForwarder(), replies: newReplyBudget(int64(cfg.MaxReplyBytes), cfg.RequestTimeout, cfg.Logger),
		logLimit: rate.Sometimes{First: 10, Interval: time.Second},
	}
	a.stats.init()
	a.fast.init()
	return a
}

// Close closes the connection to the leader. Call it after the servers have stopped.
func (a *API) Close() {
	a.leaderRenewals.close()
	a.leader.close()
}

// Register registers etcd's services with s.
func (a *API) Register(s *grpc.Server) {
	pb.RegisterKVServer(s, &kvServer{API: a})
	pb.RegisterWatchServer(s, &watchServer{API: a})
	pb.RegisterLeaseServer(s, &leaseServer{API: a})
	pb.RegisterClusterServer(s, &clusterServer{API: a})
	pb.RegisterMaintenanceServer(s, &maintenanceServer{API: a})
	pb.RegisterAuthServer(s, &authServer{API: a})

	healthpb.RegisterHealthServer(s, a.newHealthServer())
	if a.cfg.Metrics != nil {
		a.cfg.Metrics.InitializeMetrics(s)
	}
}

// ServerOptions returns the interceptors and limits that a server of this API needs. The caller
// adds those that concern connections, such as credentials and keepalive.
func (a *API) ServerOptions() []grpc.ServerOption {
	var stream []grpc.StreamServerInterceptor
	if m := a.cfg.Metrics; m != nil {
		stream = append(stream, m.StreamServerInterceptor())
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(a.unaryInterceptors()...),
		grpc.ChainStreamInterceptor(append(stream, a.interceptStream)...),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(a.maxMessageBytes()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(a.cfg.MaxConcurrentStreams),
	}
}

// unaryInterceptors returns the interceptors of unary calls. Requests on fastkv's streams pass
// the same ones.
func (a *API) unaryInterceptors() (all []grpc.UnaryServerInterceptor) {
	if m := a.cfg.Metrics; m != nil {
		all = append(all, m.UnaryServerInterceptor())
	}
	return append(all, a.interceptUnary)
}

func (a *API) maxMessageBytes() int { return a.cfg.MaxRequestBytes + messageOverhead }

// Proposer replicates requests.
type Proposer interface {
	// Propose returns the result of applying r.
	Propose(ctx context.Context, r *pb.InternalRaftRequest) (store.Result, error)
}

// Reader permits reads of its store.
type Reader interface {
	// Read returns when the store may answer a read of this mode.
	Read(ctx context.Context, mode kvnode.ReadMode) (kvnode.Read, error)
	// WaitForReplay returns when the store may answer a stale read, or when ctx ends.
	WaitForReplay(ctx context.Context) error
	// TryRead reports whether the store may now answer linearizable reads that have arrived.
	TryRead() bool
	Store() *store.Store
}

// Member is one member's view of itself and its cluster.
type Member interface {
	ID() uint64
	ClusterID() uint64
	Term() uint64
	// Leader returns 0 if no leader is known. It takes no lock.
	Leader() uint64
	// LeaderChanged returns a channel that is closed when the leader is lost or changes.
	LeaderChanged() <-chan struct{}
	MoveLeader(ctx context.Context, to uint64) error
	// Checkpoint makes the applied state durable, so that a snapshot contains it.
	Checkpoint(ctx context.Context) error
	// Alive returns why the member has ended, nil while it runs. It does not block.
	Alive() error
	// Stalls returns how long the raft loop and the applier have made no progress. It does not
	// block.
	Stalls() (loop, applier time.Duration)
	Status() kvnode.Status
	// Config returns the configuration in effect.
	Config() kvnode.Config
}

// Changer changes the members of the cluster.
type Changer interface {
	AddMember(ctx context.Context, peerURLs []string, learner bool) (store.Member, error)
	RemoveMember(ctx context.Context, id uint64) error
	UpdateMember(ctx context.Context, id uint64, peerURLs []string) error
	// PromoteMember works on the leader only.
	PromoteMember(ctx context.Context, id uint64) error
}

// Watcher notifies of changes in the store.
type Watcher interface {
	Watch() *watch.Hub
}

// Node is the part of *kvnode.Node that the API uses.
type Node interface {
	Changer
	Proposer
	Reader
	Member
	TTLKeeper
	Watcher
}

var _ Node = (*kvnode.Node)(nil)

// header returns a header with the current revision.
func (a *API) header() *pb.ResponseHeader {
	return a.headerAt(a.node.Store().Revision())
}

func (a *API) headerAt(revision int64) *pb.ResponseHeader {
	h := &pb.ResponseHeader{Revision: revision}
	a.fillHeader(h)
	return h
}

// fillHeader completes a header that has a revision. It adds the leader's ID, by which package
// kvnode/client finds the leader.
func (a *API) fillHeader(h *pb.ResponseHeader) {
	h.ClusterId = a.node.ClusterID()
	h.MemberId = a.node.ID()
	h.RaftTerm = a.node.Term()
	a.leaderField.Put(h, a.node.Leader())
}

// response is an etcd response with a header.
type response interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// propose replicates r and returns its response of type T with a complete header. It returns
// errors for clients.
func propose[T response](ctx context.Context, a *API, r *pb.InternalRaftRequest) (T, error) {
	var none T
	res, err := a.node.Propose(ctx, r)
	if err == nil {
		err = res.Err
	}
	if err != nil {
		return none, clientError(err)
	}
	resp, ok := res.Response.(T)
	if !ok || resp.GetHeader() == nil {
		return none, status.Errorf(codes.Internal, "kvnode: applying the request returned a %T, want a %T with a header", res.Response, none)
	}
	a.fillHeader(resp.GetHeader())
	return resp, nil
}
