package etcdapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A method that waits for others waits as long as its client does, and leaves room
// for those others; a panic and a missing leader end it like any request.
func TestMethodsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newLedNode()
		a := New(node, Config{MaxInFlight: 1, WaitingMethods: []string{"/v3lockpb.Lock/Lock"}})
		call := func(ctx context.Context, method string, handle grpc.UnaryHandler) error {
			_, err := a.interceptUnary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, handle)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				ended <- call(ctx, "/v3lockpb.Lock/Lock", func(ctx context.Context, _ any) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
			}()
		}
		time.Sleep(time.Hour)
		if err := call(ctx, "/v3lockpb.Lock/Unlock", func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Errorf("Unlock() beside two that wait = %v, want nil", err)
		}
		if len(ended) != 0 {
			t.Errorf("Lock() = %v after an hour, want it to wait", <-ended)
		}
		cancel()
		synctest.Wait()
		if len(ended) != 2 {
			t.Errorf("%d have ended with their client, want 2", len(ended))
		}

		err := call(t.Context(), "/v3lockpb.Lock/Lock", func(context.Context, any) (any, error) { panic("broken") })
		if status.Code(err) != codes.Internal {
			t.Errorf("Lock() that panics = %v, want Internal", err)
		}
		node.setLeader(0)
		md := metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
		err = call(metadata.NewIncomingContext(t.Context(), md), "/v3lockpb.Lock/Lock", func(context.Context, any) (any, error) { return nil, nil })
		wantStatus(t, "Lock() that requires a leader", err, rpctypes.ErrGRPCNoLeader)
	})
}
