package redis_test

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	kvclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/redis"
)

// twice commits each write twice, as clientv3 does after some errors.
type twice struct{ clientv3.KV }

func (kv twice) Txn(ctx context.Context) clientv3.Txn { return &twiceTxn{kv: kv.KV, ctx: ctx} }

type twiceTxn struct {
	clientv3.Txn

	kv  clientv3.KV
	ctx context.Context //nolint:containedctx // of the transaction
	cs  []clientv3.Cmp
	ops []clientv3.Op
}

func (x *twiceTxn) If(cs ...clientv3.Cmp) clientv3.Txn   { x.cs = cs; return x }
func (x *twiceTxn) Then(ops ...clientv3.Op) clientv3.Txn { x.ops = ops; return x }

func (x *twiceTxn) Commit() (*clientv3.TxnResponse, error) {
	if got, err := x.kv.Txn(x.ctx).If(x.cs...).Then(x.ops...).Commit(); err != nil || x.ops[0].IsGet() {
		return got, err
	}
	return x.kv.Txn(x.ctx).If(x.cs...).Then(x.ops...).Commit()
}

// A write that is sent twice may have its lease from the first time.
func TestARepeatedWriteKeepsItsLease(t *testing.T) {
	etcd := startCluster(t)
	revoker := &slowLease{Lease: etcd.Lease}
	c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) { cfg.KV, cfg.Lease = twice{etcd.KV}, revoker }))
	c.want("OK", "SET", "k", "v", "EX", "1000")
	c.want("-UNKNOWN…", "SET", "l", "me", "NX", "PX", "100000")
	c.want("[v me]", "MGET", "k", "l")
	if n := revoker.asked.Load(); n != 0 {
		t.Errorf("%d revocations, want none", n)
	}
}

// lateKV answers each write as etcd does when the time of the server is over.
type lateKV struct {
	pb.UnimplementedKVServer

	writes atomic.Int64
}

func (*lateKV) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (kv *lateKV) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	kv.writes.Add(1)
	return nil, context.DeadlineExceeded
}

func TestALateWriteIsNotRepeated(t *testing.T) {
	l, kv, g := listen(t), &lateKV{}, grpc.NewServer()
	pb.RegisterKVServer(g, kv)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	defer func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, DialOptions: kvclient.DialOptions(), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	dial(t, startGateway(t, etcd)).want("-UNKNOWN…", "INCR", "k")
	if n := kv.writes.Load(); n != 1 {
		t.Errorf("the write was sent %d times, want once", n)
	}
}
