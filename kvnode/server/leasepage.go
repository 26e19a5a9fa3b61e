package server

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// newLeases returns what serves the lease page, or nil if the page is turned off.
func (s *Server) newLeases() *leasepage.Live {
	if s.cfg.DisableLeasePage {
		return nil
	}
	trace, clock := s.node.Trace()
	return leasepage.NewLive(leasepage.Config{
		ID: s.node.ID(), Trace: trace, Now: clock.Now, Members: s.memberNames,
		Votes:  func(id uint64) bool { return !s.node.Store().Members().ByID[id].Learner },
		Listen: s.listenToLease, Stopping: s.streams.Done(),
		Counted: func() (leaderlease.Stats, detector.Stats) { return s.node.Lease().Stats(), s.node.Suspicions() },
	})
}

func (s *Server) memberNames() map[uint64]string {
	names := make(map[uint64]string)
	for id, m := range s.node.Store().Members().ByID {
		names[id] = m.Name
	}
	return names
}

// leasePages adds the lease page and its events. They show no keys or values.
func (s *Server) leasePages(mux *http.ServeMux) {
	if s.leases == nil {
		return
	}
	mux.HandleFunc("GET /lease", leasepage.ServePage)
	mux.HandleFunc("GET /lease/events", s.leases.ServeEvents)
	mux.Handle("GET /{$}", http.RedirectHandler("/lease", http.StatusFound))
}

// The gRPC method by which a member's lease page follows the trace of another member. Its
// messages are of well-known types, so it needs no generated code.
const (
	leaseFeedService = "leaderlease.kvnode.v1.Lease"
	leaseFeedMethod  = "/" + leaseFeedService + "/Trace"
)

// leaseFeed is implemented by *leasepage.Live.
type leaseFeed interface {
	Feed(ctx context.Context, send func([]byte) error) error
}

// registerLeaseFeed serves this member's trace to the pages of other members.
func registerLeaseFeed(to grpc.ServiceRegistrar, leases leaseFeed) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: leaseFeedService,
		HandlerType: (*leaseFeed)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Trace", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
				return err
			}
			err := leases.Feed(stream.Context(), func(b []byte) error { return stream.SendMsg(wrapperspb.Bytes(b)) })
			if errors.Is(err, leasepage.ErrTooManyFeeds) {
				return status.Error(codes.ResourceExhausted, err.Error())
			}
			return err
		}}},
	}, leases)
}

// listenToLease calls receive with another member's trace, until ctx ends or the feed fails.
func (s *Server) listenToLease(ctx context.Context, id uint64, receive func([]byte) error) error {
	m := s.node.Store().Members().ByID[id]
	conn, err := s.api.Dial(&m)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, leaseFeedMethod)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(new(emptypb.Empty)), stream.CloseSend()); err != nil {
		return err
	}
	for {
		m := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(m); err != nil {
			return err
		}
		if err := receive(m.GetValue()); err != nil {
			return err
		}
	}
}
