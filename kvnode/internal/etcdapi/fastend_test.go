package etcdapi

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var putK = &pb.PutRequest{Key: []byte("k")}

// wantEnding fails unless the stream has said that the member stops, and which request it took last.
func (r *fastRig) wantEnding(last uint64) {
	r.t.Helper()
	for over := false; !over; {
		select {
		case message := <-r.out:
			r.read(message)
		case <-r.over:
			over = true
		}
	}
	r.wantEnd(codes.Unavailable, status.Convert(rpctypes.ErrGRPCStopped).Message())
	if !slices.Equal(r.ending, []uint64{last}) {
		r.t.Errorf("the stream has said that request %d was taken last, want %d", r.ending, last)
	}
}

// holdPuts has proposals wait until the channel is closed.
func (r *fastRig) holdPuts() (leave chan struct{}) {
	leave = make(chan struct{})
	r.onPropose = func(ctx context.Context, _ *pb.InternalRaftRequest) error {
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return leave
}

// A member that stops finishes what it has taken, says which request that was, and takes no more.
func TestAStreamOfAMemberThatStops(t *testing.T) {
	onStream(t, func(r *fastRig) {
		leave := r.holdPuts()
		before := r.proposals()
		r.in <- r.items(6, 2, "Put", putK)
		synctest.Wait()
		r.api.EndStreams()
		synctest.Wait()
		r.in <- r.items(8, 3, "Put", putK)
		synctest.Wait()
		close(leave)
		for range 2 {
			if a := r.next(); a.ID > 7 || a.Code != 0 {
				t.Errorf("request %d is answered with %v, want 6 and 7", a.ID, codes.Code(a.Code))
			}
		}
		r.wantEnding(7)
		if n := r.proposals() - before; n != 2 {
			t.Errorf("%d puts are proposed, want the 2 that were taken", n)
		}
		late := r.beside(r.api.cfg)
		late.api.EndStreams()
		late.wantEnding(0)
	})
}

// A message that is being taken when the member stops is taken as a whole.
func TestAMessageOfAMemberThatStops(t *testing.T) {
	onStream(t, func(r *fastRig) {
		leave := r.holdPuts()
		const many = aloneItems + 100 // more than there is room for
		r.in <- r.items(1, many, "Put", putK)
		synctest.Wait()
		r.api.EndStreams()
		synctest.Wait()
		close(leave)
		for range many {
			if a := r.next(); a.Code != 0 {
				t.Fatalf("request %d is answered with %v", a.ID, codes.Code(a.Code))
			}
		}
		r.wantEnding(many)
	})
}
