package etcdapi

import (
	"math"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

const (
	// messageOverhead is by how much a message may exceed MaxRequestBytes.
	messageOverhead = 512 << 10
	// maxHeaderBytes bounds the metadata of one request.
	maxHeaderBytes = 64 << 10
	// handshakeTimeout bounds how long a connection may take to become one.
	handshakeTimeout = 5 * time.Second
	// streamWorkers is how many goroutines wait for requests with a stack that
	// has grown already: to grow a new one is a fifth of the processor time of a
	// read. Beyond them, or if watches hold them, each request has its own. Fewer:
	// writes, which wait, hold them all. More: memory, some 10 KiB for each.
	streamWorkers = 256
)

// API serves the etcd v3 API. It starts no goroutine of its own, but a connection
// to the leader has some: Close closes it.
type API struct {
	node Node
	cfg  Config

	// leader is where requests go that only the leader can answer.
	leader    leaderConn
	leaderID  fastwire.LeaderField
	elsewhere elsewhere
	// replies bounds the memory of large replies, deliveries those of the gateway.
	replies    *replies
	deliveries deliveries
	// inFlight counts unary requests under way.
	inFlight atomic.Int64
	fast     fastLimits
	times    times
	// complain limits what is logged because of requests.
	complain rate.Sometimes
}

// New returns the API of node. It expects a configuration that Validate takes.
func New(node Node, cfg Config) *API {
	cfg = cfg.WithDefaults().as(node.Config())
	cfg.Logger = cfg.Logger.With("component", "etcdapi")
	a := &API{
		node: node, cfg: cfg, elsewhere: newElsewhere(), replies: newReplies(int64(cfg.MaxReplyBytes), cfg.RequestTimeout, cfg.Logger),
		complain: rate.Sometimes{First: 10, Interval: time.Second},
	}
	a.times.init()
	a.fast.init()
	return a
}

// Close closes the connection to the leader. It comes after the servers' end.
func (a *API) Close() {
	a.elsewhere.close()
	a.leader.close()
}

// Register registers all of etcd's services with s.
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

// ServerOptions returns the options that a server of this API needs: its
// interceptors and limits. Credentials are the caller's to add.
func (a *API) ServerOptions() []grpc.ServerOption {
	var stream []grpc.StreamServerInterceptor
	if m := a.cfg.Metrics; m != nil {
		stream = append(stream, m.StreamServerInterceptor())
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(a.unary()...),
		grpc.ChainStreamInterceptor(append(stream, a.interceptStream)...),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(a.maxMessageBytes()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(a.cfg.MaxConcurrentStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
	}
}

// unary returns what each call passes, and each request of a stream of service Fast.
func (a *API) unary() (all []grpc.UnaryServerInterceptor) {
	if m := a.cfg.Metrics; m != nil {
		all = append(all, m.UnaryServerInterceptor())
	}
	return append(all, a.interceptUnary)
}

func (a *API) maxMessageBytes() int { return a.cfg.MaxRequestBytes + messageOverhead }
