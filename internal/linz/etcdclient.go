package linz

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/kvclient"
)

// EtcdClient makes single requests of one member at a time. It belongs to one
// goroutine at a time.
type EtcdClient struct {
	To   *clientv3.Client
	Name string // of the member, for the record
	// Serializable makes reads serializable, and records them as if they were
	// linearizable: the negative control of Check.
	Serializable bool

	rec *Client
}

// NewEtcdClient returns a client that records its requests in r. The caller sets To and Name.
// Each request is made once. A failed read has no effect. A failed write may still take effect, unless
// the request never left the client.
func NewEtcdClient(r *Recorder) EtcdClient { return EtcdClient{rec: r.Client()} }

// Get reads a key linearizably.
func (c *EtcdClient) Get(ctx context.Context, key string) (kvclient.Answer, error) {
	var opts []clientv3.OpOption
	if c.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	c.rec.Call(Op{Kind: Get, Key: key})
	got, err := kvclient.Get(ctx, c.To, key, opts...)
	c.done(err, func(op *Op) {
		op.Note += " " + got.Path
		op.Revision, op.Seen = got.Revision, Version{Value: got.Value, Mod: got.Mod}
	})
	return got, err
}

// Put writes a key. The value must be unique in the history.
func (c *EtcdClient) Put(ctx context.Context, key, value string) (now Version, err error) {
	c.rec.Call(Op{Kind: Put, Key: key, Value: value})
	resp, err := c.To.Put(ctx, key, value)
	c.done(err, func(op *Op) {
		op.Revision = resp.Header.GetRevision()
		now = op.Version()
	})
	return now, err
}

// Delete deletes a key.
func (c *EtcdClient) Delete(ctx context.Context, key string) error {
	c.rec.Call(Op{Kind: Delete, Key: key})
	resp, err := c.To.Delete(ctx, key, clientv3.WithPrevKV())
	c.done(err, func(op *Op) {
		op.Revision, op.Seen = resp.Header.GetRevision(), VersionOf(resp.PrevKvs)
	})
	return err
}

// CAS writes a key if its mod revision is expect, and reads it otherwise. The
// value must be unique in the history.
func (c *EtcdClient) CAS(ctx context.Context, key, value string, expect int64) (now Version, err error) {
	c.rec.Call(Op{Kind: CAS, Key: key, Value: value, Expect: expect})
	resp, err := c.To.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expect)).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key)).
		Commit()
	c.done(err, func(op *Op) {
		op.Revision, op.Swapped = resp.Header.GetRevision(), resp.Succeeded
		if now = op.Version(); !op.Swapped {
			op.Seen = VersionOf(resp.Responses[0].GetResponseRange().GetKvs())
			now = op.Seen
		}
	})
	return now, err
}

// done ends the operation; answered fills in the answer.
func (c *EtcdClient) done(err error, answered func(*Op)) {
	c.rec.Return(func(op *Op) {
		op.Note = c.Name
		if op.Outcome = outcome(err); op.Outcome == OK {
			answered(op)
		}
	})
}

// outcome derives the outcome from the error of a request.
func outcome(err error) Outcome {
	switch {
	case err == nil:
		return OK
	case rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests):
		return Failed
	case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "Error while dialing"):
		return Failed // there was no connection to send it on
	default:
		return Unknown
	}
}

// VersionOf returns the version in the answer to a request for one key.
func VersionOf(kvs []*mvccpb.KeyValue) Version {
	if len(kvs) == 0 {
		return Version{}
	}
	return Version{Value: string(kvs[0].GetValue()), Mod: kvs[0].GetModRevision()}
}
