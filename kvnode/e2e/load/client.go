package load

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/internal/linz"
)

// Client makes single requests of one member and records them.
type Client struct {
	rec *linz.Client
	to  *clientv3.Client
	// name of the member, for the record.
	name string
	// Serializable makes reads as stale as they come, and has them judged as if
	// they were linearizable: the negative control of the judge.
	Serializable bool
}

// Get reads a key linearizably.
func (c *Client) Get(ctx context.Context, key string) (linz.Version, error) {
	var path string
	ctx = context.WithValue(ctx, pathKey{}, &path)
	c.rec.Call(linz.Op{Kind: linz.Get, Key: key})
	var opts []clientv3.OpOption
	if c.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := c.to.Get(ctx, key, opts...)
	var seen linz.Version
	c.rec.Return(func(op *linz.Op) {
		op.Note = c.name + " " + path
		if op.Outcome = outcome(err); op.Outcome == linz.OK {
			op.Revision = resp.Header.GetRevision()
			op.Seen = version(resp.Kvs)
			seen = op.Seen
		}
	})
	return seen, err
}

// Put writes a key.
func (c *Client) Put(ctx context.Context, key, value string) (linz.Version, error) {
	c.rec.Call(linz.Op{Kind: linz.Put, Key: key, Value: value})
	resp, err := c.to.Put(ctx, key, value)
	var now linz.Version
	c.rec.Return(func(op *linz.Op) {
		op.Note = c.name
		if op.Outcome = outcome(err); op.Outcome == linz.OK {
			op.Revision = resp.Header.GetRevision()
			now = linz.Version{Value: value, Mod: op.Revision}
		}
	})
	return now, err
}

// Delete deletes a key.
func (c *Client) Delete(ctx context.Context, key string) (linz.Version, error) {
	c.rec.Call(linz.Op{Kind: linz.Delete, Key: key})
	resp, err := c.to.Delete(ctx, key, clientv3.WithPrevKV())
	c.rec.Return(func(op *linz.Op) {
		op.Note = c.name
		if op.Outcome = outcome(err); op.Outcome == linz.OK {
			op.Revision = resp.Header.GetRevision()
			op.Seen = version(resp.PrevKvs)
		}
	})
	return linz.Version{}, err
}

// CAS writes a key if its mod revision is expect, and reads it otherwise.
func (c *Client) CAS(ctx context.Context, key, value string, expect int64) (linz.Version, error) {
	c.rec.Call(linz.Op{Kind: linz.CAS, Key: key, Value: value, Expect: expect})
	resp, err := c.to.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expect)).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key)).
		Commit()
	var now linz.Version
	c.rec.Return(func(op *linz.Op) {
		op.Note = c.name
		if op.Outcome = outcome(err); op.Outcome != linz.OK {
			return
		}
		op.Revision, op.Swapped = resp.Header.GetRevision(), resp.Succeeded
		if now = (linz.Version{Value: value, Mod: op.Revision}); !op.Swapped {
			op.Seen = version(resp.Responses[0].GetResponseRange().GetKvs())
			now = op.Seen
		}
	})
	return now, err
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
