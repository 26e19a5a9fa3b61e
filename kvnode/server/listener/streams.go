package listener

import (
	"context"
	"net"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
	epb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// Room returns an error if a method has no room for another stream from addr.
type Room func(addr net.Addr, method string) error

// kinds are the methods with streams that are not connlimit.Short.
var kinds = map[string]connlimit.Kind{
	pb.Watch_Watch_FullMethodName:          connlimit.Waiting,
	lpb.Lock_Lock_FullMethodName:           connlimit.Waiting,
	epb.Election_Campaign_FullMethodName:   connlimit.Waiting,
	epb.Election_Observe_FullMethodName:    connlimit.Waiting,
	fastwire.Method:                        connlimit.Waiting,
	pb.Lease_LeaseKeepAlive_FullMethodName: connlimit.Long,
	pb.KV_RangeStream_FullMethodName:       connlimit.Long,
	pb.Maintenance_Snapshot_FullMethodName: connlimit.Long,
	healthpb.Health_Watch_FullMethodName:   connlimit.Long,
}

// allow returns what gRPC calls before it serves a stream. A refused stream costs
// neither a goroutine nor buffers.
func (e *Clients) allow(room Room) tap.ServerInHandle {
	return func(ctx context.Context, stream *tap.Info) (context.Context, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, nil
		}
		end, err := e.begin(p.Addr, stream.FullMethodName)
		if err != nil {
			return ctx, err
		}
		if err := room(p.Addr, stream.FullMethodName); err != nil {
			end()
			e.h2.Refuse(p.Addr, err)
			return ctx, err
		}
		context.AfterFunc(ctx, end) // gRPC ends the context with the stream
		return ctx, nil
	}
}

// GatewayOptions returns the options of the gRPC server of the JSON gateway. Its
// requests count as open streams, although one connection carries them all.
func (e *Clients) GatewayOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			end, err := e.begin(queueAddr{}, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer end()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			end, err := e.begin(queueAddr{}, info.FullMethod)
			if err != nil {
				return err
			}
			defer end()
			return handle(srv, stream)
		}),
	}
}

func (e *Clients) begin(addr net.Addr, method string) (end func(), err error) {
	if end, err = e.h2.Begin(addr, kinds[method]); err != nil {
		return nil, grpcstatus.Error(codes.ResourceExhausted, err.Error())
	}
	return end, nil
}
