package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/linz"
)

// keyPrefix begins every key that is recorded.
const keyPrefix = "story/"

// cast is everybody who reads and writes in the story, and the record of it.
type cast struct {
	recorder *linz.Recorder
	keys     *linz.Keys
	// writes and reads count those that were acknowledged.
	writes, reads atomic.Int64

	mu struct {
		sync.Mutex
		actors []*actor
	}
}

const (
	// slots is the number of keys that the load works on at one time.
	slots = 5
	// opsPerKey keeps each key's history small enough to be judged at once.
	opsPerKey = 400
)

func newCast() *cast {
	return &cast{recorder: linz.NewRecorder(), keys: linz.NewKeys(keyPrefix+"load", slots, opsPerKey)}
}

// actor is one client whose every operation is recorded. It belongs to one
// goroutine at a time.
type actor struct {
	id    int
	cast  *cast
	log   *linz.Client
	count int // writes so far, for values that are unique

	paths  map[string]int // reads by path
	leased []leased
}

// leased is a read that a member has served under its lease in a term, at an
// instant between two readings of this process's clock.
type leased struct {
	term             uint64
	called, returned time.Time
}

func (c *cast) actor() *actor {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &actor{id: len(c.mu.actors), cast: c, log: c.recorder.Client(), paths: make(map[string]int)}
	c.mu.actors = append(c.mu.actors, a)
	return a
}

// get reads a key and is linearizable, so mode must not be serializable.
func (a *actor) get(ctx context.Context, c *client, key, mode string) (answer, error) {
	a.log.Call(linz.Op{Kind: linz.Get, Key: key})
	got, err := c.read(ctx, key, mode)
	a.log.Return(func(op *linz.Op) {
		op.Outcome = linz.Failed // a read without an answer has shown nothing
		if err == nil {
			op.Outcome, op.Revision, op.Seen = linz.OK, got.revision, linz.Version{Value: got.value, Mod: got.mod}
		}
	})
	if err != nil {
		return got, err
	}
	a.cast.reads.Add(1)
	a.paths[got.path]++
	if got.path == pathLease {
		a.leased = append(a.leased, leased{got.term, got.called, got.returned})
	}
	return got, nil
}

// value returns a value that nobody else writes.
func (a *actor) value() string {
	a.count++
	return fmt.Sprintf("%d.%d", a.id, a.count)
}

// wrote ends a write. One that failed stays unknown: it may take effect yet.
func (a *actor) wrote(err error, answer func(*linz.Op)) {
	if err != nil {
		return
	}
	a.log.Return(func(op *linz.Op) {
		op.Outcome = linz.OK
		answer(op)
	})
	a.cast.writes.Add(1)
}

func (a *actor) put(ctx context.Context, c *client, key string) (value string, err error) {
	value = a.value()
	a.log.Call(linz.Op{Kind: linz.Put, Key: key, Value: value})
	resp, err := c.Put(ctx, key, value)
	a.wrote(err, func(op *linz.Op) { op.Revision = resp.Header.GetRevision() })
	return value, err
}

func (a *actor) remove(ctx context.Context, c *client, key string) error {
	a.log.Call(linz.Op{Kind: linz.Delete, Key: key})
	resp, err := c.Delete(ctx, key, clientv3.WithPrevKV())
	a.wrote(err, func(op *linz.Op) {
		op.Revision = resp.Header.GetRevision()
		if len(resp.PrevKvs) > 0 {
			op.Seen = linz.Version{Value: string(resp.PrevKvs[0].GetValue()), Mod: resp.PrevKvs[0].GetModRevision()}
		}
	})
	return err
}

// swap writes if the key's mod revision is as expected.
func (a *actor) swap(ctx context.Context, c *client, key string, expect int64) error {
	value := a.value()
	a.log.Call(linz.Op{Kind: linz.CAS, Key: key, Value: value, Expect: expect})
	resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", expect)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	a.wrote(err, func(op *linz.Op) {
		op.Revision, op.Swapped = resp.Header.GetRevision(), resp.Succeeded
		if resp.Succeeded || len(resp.Responses) == 0 {
			return
		}
		if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			op.Seen = linz.Version{Value: string(kvs[0].GetValue()), Mod: kvs[0].GetModRevision()}
		}
	})
	return err
}
