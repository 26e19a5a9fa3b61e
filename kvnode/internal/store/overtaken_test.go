package store_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// overtaking is a context of a read that a compaction overtakes each time that the read
// begins a scan: a read asks for its context first.
type overtaking struct {
	context.Context
	by    *replica
	times int
	asked int
}

func (c *overtaking) Err() error {
	if c.asked++; c.asked <= c.times {
		c.by.put("a", "1")
		c.by.must(compact(c.by.Revision()))
	}
	return nil
}

// A read of the newest revision that a compaction overtakes begins anew, and gives up
// after 16 of them. One of an older revision is refused at once: that is gone for good.
func TestReadsThatACompactionOvertakes(t *testing.T) {
	all := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}
	for _, c := range []struct {
		name  string
		times int
		read  func(context.Context, *replica) error
		want  error
		asked int
	}{
		{"a range, once", 1, newest(all), nil, 2},
		{"a range, as often as it may be", 15, newest(all), nil, 16},
		{"a range, for ever", 100, newest(all), rpctypes.ErrGRPCCompacted, 16},
		{"a range of a revision", 1, func(ctx context.Context, r *replica) error {
			_, err := r.Range(ctx, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Revision: r.Revision()})
			return err
		}, rpctypes.ErrGRPCCompacted, 1},
		{"a transaction, once", 1, func(ctx context.Context, r *replica) error {
			_, err := r.Store.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{opRange("a", "\x00")}})
			return err
		}, nil, 2},
	} {
		r := newReplica(t)
		r.put("a", "0")
		ctx := &overtaking{Context: t.Context(), by: r, times: c.times}
		if err := c.read(ctx, r); !errors.Is(err, c.want) || ctx.asked != c.asked {
			t.Errorf("%s = %v after %d tries, want %v after %d", c.name, err, ctx.asked, c.want, c.asked)
		}
	}
}

func newest(req *pb.RangeRequest) func(context.Context, *replica) error {
	return func(ctx context.Context, r *replica) error {
		_, err := r.Range(ctx, req)
		return err
	}
}
