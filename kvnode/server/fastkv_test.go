package server

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	toleader "github.com/leaderlease/go/kvnode/client"
)

// Locks and transactions of clientv3, which are made of its KV, are what they are by calls.
func TestLocksByAStream(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"mutexes exclude":              TestMutexExcludes,
		"software transactions add up": TestSTMAddsUp,
		"a full store is brought back": TestAFullStoreIsBroughtBack,
	} {
		t.Run(name, func(t *testing.T) {
			streamed = true
			defer func() { streamed = false }()
			test(t)
		})
	}
}

// A stream goes where the leader is: at first, when it changes, and when it is gone, with
// the picker of package client and with clientv3's turns.
func TestAStreamFollowsTheLeader(t *testing.T) {
	streamed = true
	defer func() { streamed = false }()
	for name, opts := range map[string][]grpc.DialOption{"turns": nil, "picker": toleader.DialOptions()} {
		t.Run(name, func(t *testing.T) {
			all := trio(t)
			c := clientWith(t, opts, all...)
			get := func() (*pb.ResponseHeader, error) {
				r, err := c.Get(t.Context(), "k")
				return (*pb.RangeResponse)(r).GetHeader(), err
			}
			first, others := leader(t, all)
			if got := settled(t, get); got != first.node.ID() {
				t.Errorf("requests settle on %x, want the leader %x", got, first.node.ID())
			}
			if err := first.node.MoveLeader(t.Context(), others[0].node.ID()); err != nil {
				t.Fatal(err)
			}
			if got := settled(t, get); got != others[0].node.ID() {
				t.Errorf("requests settle on %x, want the new leader %x", got, others[0].node.ID())
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := others[0].Stop(ctx); err != nil {
				t.Fatal(err)
			}
			if got := settled(t, get); got == others[0].node.ID() {
				t.Errorf("requests settle on %x, which has stopped", got)
			}
		})
	}
}
