package server

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	toleader "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// settled repeats ask until one member, the leader, has answered ten times in a row, and returns
// it.
func settled(t *testing.T, ask func() (*pb.ResponseHeader, error)) (member uint64) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for times := 0; times < 10; times++ {
		h, err := ask()
		if time.Now().After(deadline) {
			t.Fatalf("requests do not settle on the leader: the last answer is %v, %v", h, err)
		}
		if err != nil || h.GetMemberId() != fastwire.LeaderOf(h) || h.GetMemberId() != member {
			member, times = h.GetMemberId(), 0
		}
	}
	return member
}

// An unmodified clientv3 sends the leader's requests to the leader, also after it has changed or
// stopped. Other requests go to the endpoints in turn.
func TestClientsFindTheLeader(t *testing.T) {
	all := trio(t)
	c := clientWith(t, toleader.DialOptions(), all...)
	get := func() (*pb.ResponseHeader, error) {
		r, err := c.Get(t.Context(), "k")
		return (*pb.RangeResponse)(r).GetHeader(), err
	}
	put := func() (*pb.ResponseHeader, error) {
		r, err := c.Put(t.Context(), "k", "v")
		return (*pb.PutResponse)(r).GetHeader(), err
	}
	first, others := leader(t, all)
	for _, ask := range []func() (*pb.ResponseHeader, error){get, put} {
		if got := settled(t, ask); got != first.node.ID() {
			t.Errorf("requests settle on %x, want the leader %x", got, first.node.ID())
		}
	}

	until(t, "all members answer serializable reads", func() bool { // once there is a connection to each
		return answering(t, c, clientv3.WithSerializable()) == len(all)
	})
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
	if got := settled(t, put); got == others[0].node.ID() {
		t.Errorf("requests settle on %x, which has stopped", got)
	}
}

// Control: without the options, requests go to the endpoints in turn.
func TestClientsWithoutOptionsRotate(t *testing.T) {
	c := client(t, trio(t)...)
	until(t, "members answer in turn", func() bool { return answering(t, c) > 1 }) // once there are connections
}

// answering returns how many members answer 30 reads, and checks that they name the same leader.
func answering(t *testing.T, c *clientv3.Client, opts ...clientv3.OpOption) int {
	t.Helper()
	members, leaders := make(map[uint64]bool), make(map[uint64]bool)
	for range 30 {
		r, err := c.Get(t.Context(), "k", opts...)
		if err != nil {
			t.Fatal(err)
		}
		members[r.Header.GetMemberId()], leaders[fastwire.LeaderOf(r.Header)] = true, true
	}
	if len(leaders) != 1 || leaders[0] {
		t.Errorf("members name %d leaders, 0 is one of them: %v, want one", len(leaders), leaders[0])
	}
	return len(members)
}

// clientv3's locks and transactions work over fastkv.
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

// A stream goes to the leader: at first, after a change, and after the leader has stopped, with
// package client and with clientv3's rotation.
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
