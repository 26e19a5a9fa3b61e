package concurrency

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/leaderlease/go/kvnode/internal/etcdapi"
	epb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
)

const (
	// insideBytes are buffered each way between the services and the API.
	insideBytes = 64 << 10
	// readAttempts bounds how often a read is made. Fewer: a change of leader ends a
	// wait. More: without a leader a wait takes that many request timeouts to end.
	readAttempts = 3
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
		MaxUnaryRetries:    readAttempts,
		Logger:             zap.NewNop(),
	})
	if err != nil {
		s.closeServer()
		return nil, fmt.Errorf("kvnode: lock and election services: %w", err)
	}
	client.KV, client.Lease, client.Watcher = uncancelledKV{client.KV}, noKeepAliveLease{client.Lease}, requireLeaderWatcher{client.Watcher}
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

// uncancelledKV finishes transactions that have begun: whoever cancels one does not
// know whether there is a key to delete.
type uncancelledKV struct{ clientv3.KV }

// Txn implements clientv3.KV. The API bounds its time.
func (kv uncancelledKV) Txn(ctx context.Context) clientv3.Txn {
	return kv.KV.Txn(context.WithoutCancel(ctx))
}

// noKeepAliveLease keeps nothing alive. The library's sessions begin with that, for which
// it has a stream and a ticker, and ours give it up at once.
type noKeepAliveLease struct{ clientv3.Lease }

// KeepAlive implements clientv3.Lease.
func (noKeepAliveLease) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	ended := make(chan *clientv3.LeaseKeepAliveResponse)
	close(ended)
	return ended, nil
}

// requireLeaderWatcher cuts watches when there is no leader for too long: without one
// nothing is deleted, so who waits for that had better wait at another member.
type requireLeaderWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (w requireLeaderWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(clientv3.WithRequireLeader(ctx), key, opts...)
}

// revokeTime bounds the revocation of a TTL lease that would run out anyway.
// Longer: without a leader callers learn later that their wait has failed.
const revokeTime = time.Second

// noLease is for sessions that put nothing: no TTL lease has this ID.
const noLease = -1

// session returns a session over a TTL lease, a new one if it is 0. Its caller
// keeps the TTL lease alive.
func (s *Services) session(ctx context.Context, lease int64) (*concurrency.Session, error) {
	return newSession(ctx, s.client, lease)
}

func newSession(ctx context.Context, client *clientv3.Client, lease int64) (*concurrency.Session, error) {
	session, err := concurrency.NewSession(client,
		concurrency.WithLease(clientv3.LeaseID(lease)), concurrency.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	session.Orphan()
	return session, nil
}

// revokeOwnLease revokes the TTL lease of a session that nobody will hear of, because
// its wait has failed. One that the client gave belongs to the client.
func (s *Services) revokeOwnLease(session *concurrency.Session, given int64) {
	if given != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.client.Ctx(), revokeTime)
	defer cancel()
	_, _ = s.client.Revoke(ctx, session.Lease())
}

// untilStopping returns a context that ends with the member too.
func (s *Services) untilStopping(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(rpctypes.ErrGRPCStopped) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// clientError returns what a client is told of err. What etcd's client returns is
// Unknown to gRPC, with etcd's text, and so it is in etcd.
func clientError(ctx context.Context, err error) error {
	lost, isLost := errors.AsType[keyLostError](context.Cause(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped):
		return rpctypes.ErrGRPCStopped
	case isLost:
		return lost.error
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok && e.Code() == codes.Unavailable {
		return status.Error(e.Code(), e.Error())
	}
	return err
}
