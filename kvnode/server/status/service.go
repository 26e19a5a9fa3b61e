package status

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// service is registered by hand: the message is JSON in a BytesValue, so that
// the Report is defined in one place and needs no stubs.
const (
	service = "leaderlease.kvnode.v1.Node"

	// Method is the full name of the only method.
	Method = "/" + service + "/Status"
)

// reporter is what the service asks.
type reporter interface{ Report() Report }

// Register serves what source reports.
func Register(s grpc.ServiceRegistrar, source reporter) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*reporter)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Status", Handler: handle}},
	}, source)
}

func handle(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC gives the order
	request := new(emptypb.Empty)
	if err := decode(request); err != nil {
		return nil, err
	}
	source, ok := srv.(reporter)
	if !ok {
		return nil, grpcstatus.Errorf(codes.Internal, "%T does not report", srv)
	}
	answer := func(context.Context, any) (any, error) {
		data, err := json.Marshal(source.Report())
		return wrapperspb.Bytes(data), err
	}
	if intercept == nil {
		return answer(ctx, request)
	}
	return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: Method}, answer)
}

// Fetch asks the member that conn leads to.
func Fetch(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (Report, error) {
	answer := new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, Method, new(emptypb.Empty), answer, opts...); err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(answer.GetValue(), &r); err != nil {
		return Report{}, fmt.Errorf("kvnode: the answer of %s is not a status: %w", Method, err)
	}
	return r, nil
}
