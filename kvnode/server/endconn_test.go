package server

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/server/status"
)

// ending is an interceptor that closes the connection of its client.
type ending struct{ done chan bool }

func (e ending) end(ctx context.Context) {
	ended := false
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.Addr.(interface {
			End()
			Ended() bool
		}); ok {
			before := c.Ended()
			c.End()
			ended = !before && c.Ended()
		}
	}
	e.done <- ended
}

// A handler can close the connection of its client by the address, in plain text and
// with TLS.
func TestConnectionsOfClientsCanBeEnded(t *testing.T) {
	f := newFiles(t)
	for name, change := range map[string]func(*Config){"plain text": func(*Config) {}, "TLS": f.encrypted} {
		t.Run(name, func(t *testing.T) {
			s := solo(t, onePort, change)
			e := ending{make(chan bool, 1)}
			g := grpc.NewServer(slices.Concat(s.grpcOptions(), s.clients.Options(s.api.RoomForStream), []grpc.ServerOption{grpc.ChainUnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
					e.end(ctx)
					return handle(ctx, req)
				})})...)
			status.Register(g, s)
			secure := name == "TLS"
			l := s.clients.ForGRPC(ephemeral(t), secure)
			s.wg.Go(func() { _ = g.Serve(l) })
			defer g.Stop()
			creds := insecure.NewCredentials()
			if secure {
				creds = credentials.NewTLS(f.trusting())
			}
			conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = status.Fetch(t.Context(), conn)
			if ended := <-e.done; !ended || grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("a call whose connection is ended = %v, ended: %v; want Unavailable", err, ended)
			}
		})
	}
}
