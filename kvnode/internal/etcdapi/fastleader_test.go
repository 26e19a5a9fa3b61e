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

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// What a stream requires is required of its requests, and they end as calls do: one that waits
// when the leader is lost goes on waiting, and a new one is refused.
func TestAStreamThatRequiresALeader(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r2 := &fastRig{t: t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
		stream := &stoppable{fastRig: r2, ctx: metadata.NewIncomingContext(r.ctx, metadata.Pairs("hasleader", "true"))}
		go func() {
			defer close(r2.over)
			r2.ended = r.api.interceptStream(&kvServer{API: r.api}, stream, &grpc.StreamServerInfo{FullMethod: fastwire.Method}, serveFast)
		}()
		<-r2.out
		leave := make(chan struct{})
		r.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r2.in <- r2.items(1, 1, "Range", getK)
		synctest.Wait()
		r.setLeader(0)
		time.Sleep(leaderlessTimeouts*r.api.cfg.ElectionTimeout + 1)
		synctest.Wait()
		r2.in <- r2.items(2, 1, "Range", getK)
		r2.want(2, codes.Unavailable, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
		r.setLeader(testMember)
		close(leave)
		r2.want(1, codes.OK, "")
		r.cancel(context.Canceled)
		<-r2.over
	})
}
