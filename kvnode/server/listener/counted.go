package listener

import (
	"context"
	"net"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	epb "github.com/leaderlease/go/kvnode/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/etcdapi/concurrency/v3lockpb"
	"github.com/leaderlease/go/kvnode/internal/arrivals"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/server/floodgate"
)

// counted is an Entrance that counts what those who have come in send, so that no
// connection costs more than it may.
type counted struct{ *Entrance }

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.Entrance.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	host := arrivals.Host(conn.RemoteAddr().String())
	return c.meter.Conn(conn, func() bool { return c.isMember(host) }), info, nil
}

// lasting are the methods whose requests last until others are served: those that
// give locks back, and keep TTL leases alive, are not among them.
var lasting = map[string]bool{
	pb.Watch_Watch_FullMethodName:        true,
	lpb.Lock_Lock_FullMethodName:         true,
	epb.Election_Campaign_FullMethodName: true,
	epb.Election_Observe_FullMethodName:  true,
	fastwire.Method:                      true,
}

// permit returns what gRPC asks before it serves a stream. A stream that is refused here costs
// neither a goroutine nor buffers.
func permit(room Room) tap.ServerInHandle {
	return func(ctx context.Context, stream *tap.Info) (context.Context, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, nil
		}
		from, ok := p.Addr.(*endableAddr)
		if !ok {
			return ctx, nil
		}
		if err := floodgate.Permit(from.conn.Conn, lasting[stream.FullMethodName]); err != nil {
			return ctx, grpcstatus.Error(codes.ResourceExhausted, err.Error())
		}
		if err := room(p.Addr, stream.FullMethodName); err != nil {
			floodgate.Refused(from.conn.Conn, err)
			return ctx, err
		}
		return ctx, nil
	}
}

// GatewayOptions make a server of gRPC one whose requests come from the JSON gateway. They count
// as open streams like those of the entrance, although the gateway has one connection for all.
func (e *Entrance) GatewayOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			end, err := e.beginRequest(info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer end()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			end, err := e.beginRequest(info.FullMethod)
			if err != nil {
				return err
			}
			defer end()
			return handle(srv, stream)
		}),
	}
}

func (e *Entrance) beginRequest(method string) (end func(), err error) {
	end, err = e.meter.BeginRequest(lasting[method])
	if err != nil {
		return nil, grpcstatus.Error(codes.ResourceExhausted, err.Error())
	}
	return end, nil
}
