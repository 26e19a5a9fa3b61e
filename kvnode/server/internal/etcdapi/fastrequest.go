package etcdapi

import (
	"bytes"
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// blockingRequest is a request that may have to wait.
type blockingRequest struct {
	fastwire.Request

	cost   int
	ctx    context.Context
	cancel context.CancelFunc
}

// handleRequest answers a request inline or starts a worker for it. arrived is when its message
// arrived.
func (s *fastStream) handleRequest(data []byte, arrived time.Time) error {
	var r fastwire.Request
	if err := r.Decode(data); err != nil {
		return malformed(err)
	}
	if r.Cancel {
		s.cancelRequest(r.ID)
		return nil
	}
	s.lastID = r.ID
	if !s.inline.skipReserve {
		if err := s.reserve(r.ID, 0); err != nil {
			return err
		}
	}
	if s.answerInline(&r) {
		return nil
	}
	s.inline.skipReserve, s.inline.start = false, time.Time{}
	i := &blockingRequest{cost: s.costOf(&r, len(data))}
	if err := s.reserve(r.ID, i.cost); status.Code(err) == codes.ResourceExhausted {
		s.answer(r.ID, nil, err)
		s.inline.skipReserve = false
		return nil
	} else if err != nil {
		return err
	}
	s.inline.skipReserve = false
	// Copy the request, so that it does not keep the whole message alive.
	if err := i.Decode(bytes.Clone(data)); err != nil {
		return malformed(err)
	}
	var err error
	if i.ctx, i.cancel, err = s.requestContext(i.Request, arrived); err != nil {
		return err
	}
	return s.startRequest(i)
}

func malformed(err error) error {
	return status.Errorf(codes.InvalidArgument, "kvnode: a request on the stream cannot be read: %v", err)
}

// headerOverhead is HTTP/2's overhead for a header.
const headerOverhead = 32

// requestContext returns a context like that of a call.
func (s *fastStream) requestContext(r fastwire.Request, arrived time.Time) (context.Context, context.CancelFunc, error) {
	ctx := s.requestCtx
	if n := len(r.Metadata); n%2 != 0 {
		return nil, nil, status.Errorf(codes.InvalidArgument, "kvnode: request %d has %d keys and values of metadata, want as many keys as values", r.ID, n)
	} else if n > 0 {
		own := make(metadata.MD, n/2)
		size := 0
		for i := 0; i < n; i += 2 {
			if size += len(r.Metadata[i]) + len(r.Metadata[i+1]) + headerOverhead; size > maxHeaderBytes {
				return nil, nil, status.Errorf(codes.InvalidArgument, "kvnode: request %d has metadata of more than %d bytes", r.ID, maxHeaderBytes)
			}
			own.Append(string(r.Metadata[i]), string(r.Metadata[i+1]))
		}
		ctx = metadata.NewIncomingContext(ctx, metadata.Join(own, s.md))
	}
	if r.Timeout == 0 {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithDeadline(ctx, arrived.Add(r.Timeout))
	return ctx, cancel, nil
}

func errDuplicateID(id uint64) error {
	return status.Errorf(codes.InvalidArgument, "kvnode: the stream already has a pending request %d", id)
}

// startRequest gives a request to an idle or a new worker.
func (s *fastStream) startRequest(i *blockingRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ended {
		i.cancel()
		return errEnded
	}
	s.mu.pending[i.ID] = i
	select {
	case s.handoff <- i:
	default:
		s.working.Go(func() { s.runWorker(i) })
	}
	return nil
}

// runWorker serves a request, and then others. A worker's stack has grown already: growing a new
// one takes a fifth of the leader's CPU time for a put.
func (s *fastStream) runWorker(i *blockingRequest) {
	for i != nil {
		s.serveRequest(i)
		i = s.nextRequest()
	}
}

// nextRequest waits for the next request. It returns nil if the stream has ended, or if
// maxIdleWorkers workers are idle.
func (s *fastStream) nextRequest() *blockingRequest {
	defer s.kv.fast.idleWorkers.Add(-1)
	if s.kv.fast.idleWorkers.Add(1) > maxIdleWorkers {
		return nil
	}
	return <-s.handoff
}

// serveRequest executes a request and queues its answer.
func (s *fastStream) serveRequest(i *blockingRequest) {
	defer i.cancel()
	resp, err := s.invoke(i)
	if _, ok := resp.(*reservedReply); !ok { // a reservedReply has its memory already
		s.answerSlot <- struct{}{}
		defer func() { <-s.answerSlot }()
		s.waitForSpace()
	}
	s.answer(i.ID, resp, err)
}

// invoke calls the handler of a request's method, as gRPC does for a call.
func (s *fastStream) invoke(i *blockingRequest) (any, error) {
	methods := pb.KV_ServiceDesc.Methods
	m := slices.IndexFunc(methods, func(m grpc.MethodDesc) bool { return m.MethodName == string(i.Method) })
	if m < 0 {
		return nil, status.Errorf(codes.Unimplemented, "kvnode: no method %.64q on this stream, only the unary methods of etcdserverpb.KV", i.Method)
	}
	return methods[m].Handler(s.kv, i.ctx, i.decode, s.chain)
}

// decode decodes a request, unless its deadline has passed.
func (i *blockingRequest) decode(req any) error {
	if err := i.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	m, _ := req.(proto.Message)
	if err := proto.Unmarshal(i.Message, m); err != nil {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err) // gRPC's text
	}
	return nil
}

// cancelRequest cancels a request that has no answer yet.
func (s *fastStream) cancelRequest(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.mu.pending[id]; i != nil {
		i.cancel()
	}
}
