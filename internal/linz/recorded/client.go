// Package recorded is a client whose every request is recorded, for package linz
// to judge.
//
// Each request is made once. A read that fails tells nothing; a write that fails
// may take effect later, unless it is certain that it never left the client.
package recorded

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/linz"
)

// Client makes single requests of one member at a time. It belongs to one
// goroutine at a time.
type Client struct {
	To   *clientv3.Client
	Name string // of the member, for the record
	// Serializable makes reads as stale as they come, and has them judged as if
	// they were linearizable: the negative control of the judge.
	Serializable bool

	rec *linz.Client
}

// New returns a client that r records. Its member is to be set.
func New(r *linz.Recorder) Client { return Client{rec: r.Client()} }

// Get reads a key linearizably.
func (c *Client) Get(ctx context.Context, key string) (kvclient.Answer, error) {
	var opts []clientv3.OpOption
	if c.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	c.rec.Call(linz.Op{Kind: linz.Get, Key: key})
	got, err := kvclient.Get(ctx, c.To, key, opts...)
	c.done(err, func(op *linz.Op) {
		op.Note += " " + got.Path
		op.Revision, op.Seen = got.Revision, linz.Version{Value: got.Value, Mod: got.Mod}
	})
	return got, err
}

// Put writes a key. The value must be unique in the history.
func (c *Client) Put(ctx context.Context, key, value string) (now linz.Version, err error) {
	c.rec.Call(linz.Op{Kind: linz.Put, Key: key, Value: value})
	resp, err := c.To.Put(ctx, key, value)
	c.done(err, func(op *linz.Op) {
		op.Revision = resp.Header.GetRevision()
		now = op.Version()
	})
	return now, err
}

// Delete deletes a key.
func (c *Client) Delete(ctx context.Context, key string) error {
	c.rec.Call(linz.Op{Kind: linz.Delete, Key: key})
	resp, err := c.To.Delete(ctx, key, clientv3.WithPrevKV())
	c.done(err, func(op *linz.Op) {
		op.Revision, op.Seen = resp.Header.GetRevision(), Version(resp.PrevKvs)
	})
	return err
}

// CAS writes a key if its mod revision is expect, and reads it otherwise. The
// value must be unique in the history.
func (c *Client) CAS(ctx context.Context, key, value string, expect int64) (now linz.Version, err error) {
	c.rec.Call(linz.Op{Kind: linz.CAS, Key: key, Value: value, Expect: expect})
	resp, err := c.To.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expect)).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key)).
		Commit()
	c.done(err, func(op *linz.Op) {
		op.Revision, op.Swapped = resp.Header.GetRevision(), resp.Succeeded
		if now = op.Version(); !op.Swapped {
			op.Seen = Version(resp.Responses[0].GetResponseRange().GetKvs())
			now = op.Seen
		}
	})
	return now, err
}

// done ends the operation that was called; answered says what it was told.
func (c *Client) done(err error, answered func(*linz.Op)) {
	c.rec.Return(func(op *linz.Op) {
		op.Note = c.Name
		if op.Outcome = outcome(err); op.Outcome == linz.OK {
			answered(op)
		}
	})
}

// outcome judges the error of a request.
func outcome(err error) linz.Outcome {
	switch {
	case err == nil:
		return linz.OK
	case rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests):
		return linz.Failed
	case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "Error while dialing"):
		return linz.Failed // there was no connection to send it on
	default:
		return linz.Unknown
	}
}

// Version is what a list of at most one key says of it.
func Version(kvs []*mvccpb.KeyValue) linz.Version {
	if len(kvs) == 0 {
		return linz.Version{}
	}
	return linz.Version{Value: string(kvs[0].GetValue()), Mod: kvs[0].GetModRevision()}
}
