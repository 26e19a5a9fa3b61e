package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	epb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
)

const (
	// insideBytes are buffered each way between the services and the API.
	insideBytes = 64 << 10
	// attempts bounds how often a read is made. Fewer: a change of leader ends a
	// wait. More: without a leader a wait takes that many request timeouts to end.
	attempts = 3
)

// Waiting are the methods that wait for other clients, for etcdapi.Config.
var Waiting = []string{lpb.Lock_Lock_FullMethodName, epb.Election_Campaign_FullMethodName}

// Gateway registers the services' paths with a JSON gateway, for API.Gateway.
var Gateway = []etcdapi.GatewayService{lpb.RegisterLockHandler, epb.RegisterElectionHandler}

// Services are Lock and Election of one member.
type Services struct {
	api    *etcdapi.API // of their own
	inside *grpc.Server
	client *clientv3.Client
	// stopping is done when no wait may go on.
	stopping context.Context
	wg       sync.WaitGroup
}

// New returns the services of node, whose waits end with stopping. Close ends
// them.
func New(stopping context.Context, node etcdapi.Node, cfg etcdapi.Config) (*Services, error) {
	cfg.Metrics = nil
	cfg.TrailersOnDemand = true
	// A call waits for others anyway, and the key of one that has failed is to be deleted by all means.
	cfg.WaitForLeader = true
	// One connection carries them all.
	cfg.MaxConcurrentStreams = math.MaxUint32
	s := &Services{api: etcdapi.New(node, cfg), stopping: stopping}
	// A transaction has a name of a lock seven times. How large that may be is the
	// node's to say, with etcd's error.
	s.inside = grpc.NewServer(append(s.api.ServerOptions(), grpc.NumStreamWorkers(0), grpc.MaxRecvMsgSize(math.MaxInt32))...)
	s.api.Register(s.inside)
	listener := bufconn.Listen(insideBytes)
	// Serve returns when Close stops the server, and then it has nothing to say.
	s.wg.Go(func() { _ = s.inside.Serve(listener) })
	client, err := clientv3.New(clientv3.Config{
		Endpoints:          []string{"http://inside"},
		DialOptions:        []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })},
		MaxCallSendMsgSize: math.MaxInt32, // the API has a limit
		MaxUnaryRetries:    attempts,
		Logger:             zap.NewNop(),
	})
	if err != nil {
		s.closeServer()
		return nil, fmt.Errorf("kvnode: lock and election services: %w", err)
	}
	client.KV, client.Lease, client.Watcher = steadyKV{client.KV}, idleLease{client.Lease}, ledWatcher{client.Watcher}
	s.client = client
	return s, nil
}

// Register registers both services with r.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	lpb.RegisterLockServer(r, &lockServer{Services: s})
	epb.RegisterElectionServer(r, &electionServer{Services: s})
}

// Close cuts what is under way. It comes after the end of the server that the
// services are registered with, and before the node's.
func (s *Services) Close() error {
	err := s.client.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // so it says that it was closed
	}
	s.closeServer()
	return err
}

func (s *Services) closeServer() {
	s.inside.Stop()
	s.wg.Wait()
	s.api.Close()
}
