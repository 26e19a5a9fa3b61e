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

	"github.com/leaderlease/go/kvnode/server/internal/etcdapi"
	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
)

const (
	// insideBytes is the size of the buffers between the services and the API.
	insideBytes = 64 << 10
	// readAttempts limits the attempts of a read. With fewer, a change of leader ends a wait.
	// With more, a wait without a leader takes that many request timeouts to fail.
	readAttempts = 3
)

// Waiting are the methods that wait for other clients, for etcdapi.Config.
var Waiting = []string{lpb.Lock_Lock_FullMethodName, epb.Election_Campaign_FullMethodName}

// Gateway registers the services with a JSON gateway, for API.Gateway.
var Gateway = []etcdapi.GatewayService{lpb.RegisterLockHandler, epb.RegisterElectionHandler}

// Services are the Lock and Election services of one member.
type Services struct {
	api    *etcdapi.API // used by the services only
	inside *grpc.Server
	client *clientv3.Client
	// stopping ends all waits.
	stopping context.Context
	wg       sync.WaitGroup
}

// New returns the services of node. Their waits end with stopping. Call Close to stop them.
func New(stopping context.Context, node etcdapi.Node, cfg etcdapi.Config) (*Services, error) {
	cfg.Metrics = nil
	cfg.TrailersOnDemand = true
	// A call waits for other clients anyway, and the key of a failed call must be deleted.
	cfg.WaitForLeader = true
	// All requests share one connection.
	cfg.MaxConcurrentStreams = math.MaxUint32
	s := &Services{api: etcdapi.New(node, cfg), stopping: stopping}
	// A transaction contains the name of a lock seven times. The node limits its size,
	// with etcd's error.
	s.inside = grpc.NewServer(append(s.api.ServerOptions(), grpc.NumStreamWorkers(0), grpc.MaxRecvMsgSize(math.MaxInt32))...)
	s.api.Register(s.inside)
	listener := bufconn.Listen(insideBytes)
	// Serve returns when Close stops the server. Its error is not interesting.
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

// Close ends the calls in progress. Call it after the server that the services are registered
// with has stopped, and before the node stops.
func (s *Services) Close() error {
	err := s.client.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // the client reports its own Close
	}
	s.closeServer()
	return err
}

func (s *Services) closeServer() {
	s.inside.Stop()
	s.wg.Wait()
	s.api.Close()
}

// uncancelledKV does not cancel a transaction in progress, because a caller that cancels one does
// not know whether it has left a key to delete.
type uncancelledKV struct{ clientv3.KV }

// Txn implements clientv3.KV. The API limits its time.
func (kv uncancelledKV) Txn(ctx context.Context) clientv3.Txn {
	return kv.KV.Txn(context.WithoutCancel(ctx))
}

// noKeepAliveLease sends no keep-alives. Sessions of the library start a stream and a ticker for
// them, and the services orphan their sessions at once.
type noKeepAliveLease struct{ clientv3.Lease }

// KeepAlive implements clientv3.Lease.
func (noKeepAliveLease) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	ended := make(chan *clientv3.LeaseKeepAliveResponse)
	close(ended)
	return ended, nil
}

// requireLeaderWatcher ends watches after too long without a leader. Without a leader no key is
// deleted, so the caller should wait at another member.
type requireLeaderWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (w requireLeaderWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(clientv3.WithRequireLeader(ctx), key, opts...)
}

// revokeTime limits the revocation of a TTL lease that would expire anyway. With a longer time,
// callers learn late that their wait has failed if there is no leader.
const revokeTime = time.Second

// unusedLeaseID is for sessions that put no key. For an ID of 0 the library would create a TTL lease.
const unusedLeaseID = -1

// session returns a session with a TTL lease, or with a new one if lease is 0.
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

// revokeOwnLease revokes the TTL lease of a session after a failed request, unless the client has
// passed the lease.
func (s *Services) revokeOwnLease(session *concurrency.Session, given int64) {
	if given != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.client.Ctx(), revokeTime)
	defer cancel()
	_, _ = s.client.Revoke(ctx, session.Lease())
}

// untilStopping returns a context that also ends when the member stops.
func (s *Services) untilStopping(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.stopping, func() { cancel(rpctypes.ErrGRPCStopped) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// clientError returns err as the client sees it. An error of etcd's client that is Unavailable
// stays so. Any other becomes Unknown, with etcd's text, as in etcd.
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
