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

// maxIdleWorkers limits the idle workers of all streams, 10 KiB each. With fewer, more requests
// grow a new stack.
const maxIdleWorkers = 256

// fastStream is one stream of service Fast. Each of its requests is answered as a call would be.
// One goroutine receives, and answers requests that cannot block. One sends. Each request that may block has a
// worker.
type fastStream struct {
	kv         *kvServer
	stream     grpc.ServerStream
	conn       *fastConn
	requestCtx context.Context // parent of the requests' contexts
	cancel     context.CancelCauseFunc
	chain      grpc.UnaryServerInterceptor
	md         metadata.MD // of the stream
	pairs      int         // number of key-value pairs in md
	inline     inlineState // used by the receiving goroutine only
	lastID     uint64      // of the last request that was received; written while mu.inMessage is set
	// answerSlot is held by the worker that queues its answer. The other answers are not encoded yet.
	answerSlot chan struct{}
	// handoff passes requests to idle workers. It is closed when the stream ends. Sends and the
	// close happen under mu.
	handoff chan *blockingRequest

	working sync.WaitGroup
	mu      struct {
		sync.Mutex
		// space wakes the receiver, the worker in answerSlot and the method run. ready wakes the sender.
		space, ready sync.Cond
		inMessage    bool // the receiver handles a message
		stopping     bool // the stream ends after that message
		ended        bool // no more requests are accepted
		closed       bool // nothing is charged any more
		pending      map[uint64]*blockingRequest
		pendingCost  int      // of the requests in pending
		bytes        int      // pendingCost, and the answers that gRPC has not written
		unwritten    int      // messages given to gRPC and not written
		messages     [][]byte // the last one grows
		large        []*largeAnswer
	}
}

// RegisterFast registers service Fast, by which package fastkv sends requests of the KV service.
// The requests pass the interceptors of ServerOptions and no others: a server that authorizes
// calls in its own interceptors must not register it. Call it before Register.
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
		return status.Errorf(codes.Internal, "%T is not a KV service", srv)
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

// remoteOf returns the address of a request's connection, or nil.
func remoteOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

func newFastStream(kv *kvServer, stream grpc.ServerStream, conn *fastConn) *fastStream {
	s := &fastStream{kv: kv, stream: stream, conn: conn, chain: chain(kv.unaryInterceptors()), answerSlot: make(chan struct{}, 1), handoff: make(chan *blockingRequest)}
	s.mu.space.L, s.mu.ready.L = &s.mu, &s.mu
	s.mu.pending = make(map[uint64]*blockingRequest)
	return s
}

// run serves the stream until its client, its connection or the member ends it. It returns when
// gRPC has written all answers, so that until then the stream and its answers count towards the
// limits.
func (s *fastStream) run() error {
	ctx := s.stream.Context()
	defer context.AfterFunc(ctx, s.end)()
	received := make(chan error, 1)
	// Do not wait for this goroutine: its RecvMsg may return only after the handler has returned.
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

// receive handles messages until the client closes its side or sends a malformed message.
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
		s.inline.leased = s.inline.enabled && s.kv.node.TryRead() // after the whole message has arrived
		s.inline.skipReserve, s.inline.start = false, now
		err := fastwire.Requests(message, func(data []byte) error { return s.handleRequest(data, now) })
		s.endMessage()
		if _, ok := status.FromError(err); !ok { // a part of the message does not decode, or the stream has ended
			err = malformed(err)
		}
		if err != nil {
			return err
		}
	}
}

// errEnded is returned to the receiver when another goroutine has ended the stream.
var errEnded = errors.New("the stream has ended")

// beginMessage begins the handling of a message. It returns false if the stream has ended.
func (s *fastStream) beginMessage() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.inMessage = !s.mu.ended
	return s.mu.inMessage
}

// endMessage queues the inline answers of a message. The stream of a stopping member ends here.
func (s *fastStream) endMessage() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.inMessage = false
	if s.mu.stopping {
		s.stopLocked()
	}
}

// reserve charges the stream for a request. It waits while the stream is over its limits. Inline
// answers are charged when they are queued.
func (s *fastStream) reserve(id uint64, cost int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.mu.ended && !s.fitsLocked(cost) {
		s.flushLocked() // the wait may end only when these answers are written
		if s.mu.bytes == 0 {
			return fastwire.OverBudget(cost, s.kv.fast.bytes.Load(), maxFastBytes)
		}
		s.mu.ready.Signal()
		s.mu.space.Wait()
		s.inline.start = time.Time{}
	}
	s.inline.skipReserve = len(s.mu.pending) == 0
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

// stopAfterMessage ends the stream of a stopping member after the message in progress.
func (s *fastStream) stopAfterMessage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopping = true
	if !s.mu.inMessage {
		s.stopLocked()
	}
}

// stopLocked tells the client the last request that was received. The client can make later ones elsewhere.
func (s *fastStream) stopLocked() {
	if !s.mu.ended {
		last, charged := s.currentMessageLocked(0)
		*last = fastwire.AppendStopping(*last, s.lastID)
		s.chargeLocked(cap(*last) - charged)
	}
	s.endLocked()
}

// end accepts no more requests. The pending ones are answered, and then the sender returns.
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

// close waits until gRPC has written all messages, or dropped them with their client, and frees
// what the stream is charged for.
func (s *fastStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.mu.unwritten > 0 && s.stream.Context().Err() == nil {
		s.mu.space.Wait()
	}
	s.chargeLocked(-s.mu.bytes)
	s.mu.closed = true
}

// chain combines interceptors, as gRPC does.
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

// noTrailers discards the trailers of requests, or those of the stream would grow with each
// request. A client that needs trailers makes a call.
type noTrailers struct{}

func (noTrailers) Method() string               { return fastwire.Method }
func (noTrailers) SetHeader(metadata.MD) error  { return nil }
func (noTrailers) SendHeader(metadata.MD) error { return nil }
func (noTrailers) SetTrailer(metadata.MD) error { return nil }
