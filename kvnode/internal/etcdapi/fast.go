package etcdapi

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// maxIdleWorkers is the number of goroutines of all streams that wait for a request, 10 KiB each.
// With fewer, more requests grow a new stack.
const maxIdleWorkers = 256

// fastStream is one stream of service Fast. Its requests, which are called items, are
// answered as calls of their own would be. One goroutine receives and never waits for an
// item, one sends, and each item that may have to wait has its own.
type fastStream struct {
	kv     *kvServer
	stream grpc.ServerStream
	conn   *fastConn
	requestCtx  context.Context // that of each item is one of it
	cancel context.CancelCauseFunc
	chain  grpc.UnaryServerInterceptor
	md     metadata.MD // of the stream
	pairs  int         // of md
	inline  inlineHandler       // of the goroutine that receives, as last
	lastID   uint64      // ID of the request that was taken last
	// answerSlot is held by the item that is being answered. Others wait, with their answers
	// not encoded.
	answerSlot chan struct{}
	// handoff is where those who have done an item wait for another. Who receives puts one there
	// if somebody waits; it is closed when the stream ends. Both under the lock.
	handoff chan *fastRequest

	working sync.WaitGroup
	mu      struct {
		sync.Mutex
		// space wakes the goroutine that receives, the item that is being answered and run, ready
		// the goroutine that sends.
		space, ready sync.Cond
		inMessage      bool // a message is being taken
		stopping    bool // nothing is taken after that message
		ended       bool // nothing is taken any more
		closed      bool // nothing is charged any more
		pending       map[uint64]*fastRequest
		pendingCost       int      // what those cost
		bytes       int      // asked, and the answers that gRPC has not written
		unwritten   int      // messages that gRPC has and has not written
		messages         [][]byte // messages; the last one grows
		large       []*largeAnswer
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
	select {
	case <-kv.fast.stopping:
		return clientError(rpctypes.ErrGRPCStopped)
	default:
	}
	conn, err := kv.fast.openStream(remoteOf(stream.Context()))
	if err != nil {
		return err
	}
	defer kv.fast.closeStream(conn)
	s := newFastStream(kv, stream, conn)
	s.md, _ = metadata.FromIncomingContext(stream.Context())
	for _, values := range s.md {
		s.pairs += len(values)
	}
	s.inline.init(stream.Context(), kv.API)
	s.requestCtx, s.cancel = context.WithCancelCause(grpc.NewContextWithServerTransportStream(stream.Context(), noTrailers{}))
	defer s.cancel(nil)
	return s.run()
}

// remoteOf returns the address of a request's connection, nil if there is none.
func remoteOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

func newFastStream(kv *kvServer, stream grpc.ServerStream, conn *fastConn) *fastStream {
	s := &fastStream{kv: kv, stream: stream, conn: conn, chain: chain(kv.unaryInterceptors()), answerSlot: make(chan struct{}, 1), handoff: make(chan *fastRequest)}
	s.mu.space.L, s.mu.ready.L = &s.mu, &s.mu
	s.mu.pending = make(map[uint64]*fastRequest)
	return s
}

// run serves the stream until its client, its connection or the member ends it. It returns when
// gRPC has written all answers: until then the stream counts, and so do they.
func (s *fastStream) run() error {
	ctx := s.stream.Context()
	defer context.AfterFunc(ctx, s.end)()
	received := make(chan error, 1)
	// It ends when this call has returned, since receiving fails then, but no sooner: it
	// must not be waited for.
	go func() { received <- s.receive() }()
	s.working.Go(s.send)

	var err error
	select {
	case err = <-received:
	case <-s.kv.fast.stopping:
		err = rpctypes.ErrGRPCStopped
		s.stopAfterMessage()
	case <-ctx.Done():
	}
	s.working.Wait()
	s.close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return clientError(err)
}

// receive takes what the client sends until there is no more, or it cannot be understood.
func (s *fastStream) receive() error {
	defer s.end()
	for {
		var message fastwire.Raw
		if err := s.stream.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if !s.beginMessage() {
			return errEnded
		}
		now := time.Now()
		s.inline.leased = s.inline.enabled && s.kv.node.TryRead() // once all of the message have arrived
		s.inline.hasSpace, s.inline.start = false, now
		err := fastwire.Requests(message, func(data []byte) error { return s.handleRequest(data, now) })
		s.endMessage()
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

// beginMessage begins to take a message, unless the stream has ended.
func (s *fastStream) beginMessage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.inMessage = !s.mu.ended
	return s.mu.inMessage
}

// endMessage queues what was answered in place of a message. A stream of a member that stops ends here.
func (s *fastStream) endMessage() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.inMessage = false
	if s.mu.stopping {
		s.stopLocked()
	}
}

// reserve waits until the stream may cost so much more, and charges it. Nothing is charged for what
// is answered in place, until it is queued.
func (s *fastStream) reserve(id uint64, cost int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.mu.ended && !s.fitsLocked(cost) {
		s.flushLocked() // or there may be nothing that could be sent
		if s.mu.bytes == 0 {
			return fastwire.OverBudget(cost, s.kv.fast.bytes.Load(), maxFastBytes)
		}
		s.mu.ready.Signal()
		s.mu.space.Wait()
		s.inline.start = time.Time{}
	}
	s.inline.hasSpace = len(s.mu.pending) == 0
	if s.mu.ended {
		return errEnded
	}
	if s.mu.pending[id] != nil {
		return errDuplicateID(id)
	}
	s.mu.pendingCost += cost
	s.chargeLocked(cost)
	return nil
}

// stopAfterMessage ends the stream of a member that stops, after the message that is being taken.
func (s *fastStream) stopAfterMessage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopping = true
	if !s.mu.inMessage {
		s.stopLocked()
	}
}

// stopLocked tells the client which request was taken last: it makes those after it elsewhere.
func (s *fastStream) stopLocked() {
	if !s.mu.ended {
		last, charged := s.currentMessageLocked(0)
		*last = fastwire.AppendStopping(*last, s.lastID)
		s.chargeLocked(cap(*last) - charged)
	}
	s.endLocked()
}

// end takes nothing more. Those under way are answered, and then who sends ends.
func (s *fastStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked()
}

func (s *fastStream) endLocked() {
	if !s.mu.ended {
		s.mu.ended = true
		close(s.handoff)
	}
	s.mu.space.Broadcast()
	s.mu.ready.Signal()
}

// close waits until gRPC has written all messages, or forgets them with their client, and gives
// back what the stream has cost.
func (s *fastStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.unwritten > 0 && s.stream.Context().Err() == nil {
		s.mu.space.Wait()
	}
	s.chargeLocked(-s.mu.bytes)
	s.mu.closed = true
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
