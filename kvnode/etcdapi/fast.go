package etcdapi

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

const (
	// maxItems bounds the requests of one stream that have no answer yet, maxItemsBytes
	// their bytes and those of the answers that have not been sent. Beyond either the
	// stream is not read, and beyond the second, of answers alone, who has another one
	// waits. Fewer: a client of many goroutines waits. More: as much memory for each
	// stream whose client does not read.
	maxItems      = 4096
	maxItemsBytes = 8 << 20
	// itemBytes is what a request without an answer counts for beside its bytes, as it has
	// a goroutine. Fewer: many streams of clients that do not read have more of those. More:
	// maxItemsBytes is reached before maxItems.
	itemBytes = 1 << 10
	// allItemsBytes bounds those bytes of all streams together. Beyond it a stream that has
	// fairItemsBytes itself is not read: whose client reads has less, and goes on. More:
	// clients that do not read, on many streams, cost that much memory. Less: a few that
	// are slow wait for their own answers sooner.
	allItemsBytes  = 64 << 20
	fairItemsBytes = 64 << 10
	// maxIdleWorkers bounds the goroutines of all streams that wait for an item. More: as much
	// memory for each as its stack has grown to, some 10 KiB. Fewer: more stacks are grown anew.
	maxIdleWorkers = 256
)

// fastStream is one stream of service Fast. Its requests, which are called items, are
// answered as calls of their own would be. One goroutine receives and never waits for an
// item, one sends, and each item that may have to wait has its own.
type fastStream struct {
	kv     *kvServer
	stream grpc.ServerStream
	items  context.Context // that of each item is one of it
	cancel context.CancelCauseFunc
	chain  grpc.UnaryServerInterceptor
	md     metadata.MD // of the stream
	place  place       // of who receives
	// answering is held by the item that is being answered. Others wait, with their answers
	// not encoded.
	answering chan struct{}
	// idle is where those who have done an item wait for another. Who receives puts one there
	// if somebody waits; it is closed when the stream ends. Both under the lock.
	idle chan *item

	working sync.WaitGroup
	mu      struct {
		sync.Mutex
		room, ready sync.Cond // for who receives and the item that is being answered, for who sends
		ended       bool      // nothing is taken any more
		under       map[uint64]*item
		asked       int      // bytes of those
		bytes       int      // asked, and of the answers that have not been sent
		out         [][]byte // messages; the last one grows
		large       []*large
	}
}

// RegisterFast registers service Fast, by which package fastkv sends what would be calls of
// the KV service. They pass the interceptors of ServerOptions, and no others that the server
// has: one that has its own, to authorize calls, must not offer it. It comes before Register.
func (a *API) RegisterFast(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: fastwire.Service,
		HandlerType: (*pb.KVServer)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: fastwire.Stream, Handler: serveFast, ServerStreams: true, ClientStreams: true}},
	}, &kvServer{API: a})
}

func serveFast(srv any, stream grpc.ServerStream) error {
	kv, ok := srv.(*kvServer)
	if !ok {
		return status.Errorf(codes.Internal, "%T is no KV service", srv)
	}
	s := newFastStream(kv, stream)
	s.md, _ = metadata.FromIncomingContext(stream.Context())
	s.place.init(stream.Context(), kv.API)
	// Items outlive a stream that ends because the member stops: like calls of their own
	// they are finished then.
	items := grpc.NewContextWithServerTransportStream(context.WithoutCancel(stream.Context()), noTrailers{})
	s.items, s.cancel = context.WithCancelCause(items)
	defer s.cancel(nil)
	return s.run()
}

func newFastStream(kv *kvServer, stream grpc.ServerStream) *fastStream {
	s := &fastStream{kv: kv, stream: stream, chain: chain(kv.unary()), answering: make(chan struct{}, 1), idle: make(chan *item)}
	s.mu.room.L, s.mu.ready.L = &s.mu, &s.mu
	s.mu.under = make(map[uint64]*item)
	return s
}

// run serves the stream until its client, its connection or the member ends it.
func (s *fastStream) run() error {
	received := make(chan error, 1)
	// It ends when this call has returned, since receiving fails then, but no sooner: it
	// must not be waited for.
	go func() { received <- s.receive() }()
	s.working.Go(s.send)

	ctx := s.stream.Context()
	var err error
	select {
	case err = <-received:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped) {
		s.cancel(err)
	}
	s.end()
	s.working.Wait()
	return clientError(err)
}

// receive takes what the client sends until there is no more, or it cannot be understood.
func (s *fastStream) receive() error {
	for {
		var message fastwire.Raw
		if err := s.stream.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		now := time.Now()
		s.place.leased = s.place.may && s.kv.node.TryRead() // once all of the message have arrived
		s.place.free, s.place.at = false, now
		err := fastwire.Requests(message, func(data []byte) error { return s.take(data, now) })
		s.flush()
		if _, ok := status.FromError(err); !ok { // of the message itself
			err = malformed(err)
		}
		if err != nil {
			return err
		}
	}
}

// errEnded is what who receives is told when the stream has ended without it.
var errEnded = errors.New("the stream has ended")

// untilRoom returns once there is room for an item with that ID.
func (s *fastStream) untilRoom(id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.mu.ended && s.fullLocked() {
		s.flushLocked() // or there may be nothing that could be sent
		s.mu.ready.Signal()
		s.mu.room.Wait()
		s.place.at = time.Time{}
	}
	s.place.free = len(s.mu.under) == 0
	if s.mu.ended {
		return errEnded
	}
	if s.mu.under[id] != nil {
		return status.Errorf(codes.InvalidArgument, "kvnode: there is a request %d on the stream already that has no answer", id)
	}
	return nil
}

func (s *fastStream) fullLocked() bool {
	return len(s.mu.under) >= maxItems || s.tooMany(s.mu.bytes)
}

// tooMany reports whether the stream has so many bytes that it must not have more.
func (s *fastStream) tooMany(bytes int) bool {
	return bytes >= maxItemsBytes || bytes >= fairItemsBytes && s.kv.itemsBytes.Load() >= allItemsBytes
}

// chargeLocked counts bytes, or no more if n is negative.
func (s *fastStream) chargeLocked(n int) {
	s.mu.bytes += n
	s.kv.itemsBytes.Add(int64(n))
}

// end takes nothing more. Those under way are answered, if somebody is there, and then
// who sends ends.
func (s *fastStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended = true
	close(s.idle)
	s.mu.room.Broadcast()
	s.mu.ready.Signal()
}

// chain makes one interceptor of several, as gRPC does.
func chain(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(all) == 1 {
		return all[0]
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		return all[0](ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return chain(all[1:])(ctx, req, info, handle)
		})
	}
}

// noTrailers is where items leave their trailers. Those of the stream would grow with
// each; who wants them makes a call of its own.
type noTrailers struct{}

func (noTrailers) Method() string               { return fastwire.Method }
func (noTrailers) SetHeader(metadata.MD) error  { return nil }
func (noTrailers) SendHeader(metadata.MD) error { return nil }
func (noTrailers) SetTrailer(metadata.MD) error { return nil }
