package callmetrics

import (
	"context"

	"google.golang.org/grpc"
)

// UnaryServerInterceptor counts calls. It is to be the first of its chain.
func (m *Metrics) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		of := m.Unary(info.FullMethod)
		begun := of.Begin()
		resp, err := handle(ctx, req)
		of.End(begun, err)
		return resp, err
	}
}

// StreamServerInterceptor counts streams and their messages.
func (m *Metrics) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		of := m.method(info.FullMethod, kindOf(info.IsClientStream, info.IsServerStream))
		begun := of.Begin()
		err := handle(srv, &counted{stream, of})
		of.End(begun, err)
		return err
	}
}

// counted is a stream whose messages are counted.
type counted struct {
	grpc.ServerStream
	of *Method
}

// SendMsg implements grpc.ServerStream.
func (c *counted) SendMsg(m any) error {
	err := c.ServerStream.SendMsg(m)
	if err == nil {
		c.of.here().sent.Add(1)
	}
	return err
}

// RecvMsg implements grpc.ServerStream.
func (c *counted) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err == nil {
		c.of.here().received.Add(1)
	}
	return err
}
