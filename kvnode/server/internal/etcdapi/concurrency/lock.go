package concurrency

import (
	"context"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	pb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
)

// lockServer implements the Lock service.
type lockServer struct {
	*Services
	pb.UnsafeLockServer
}

// Lock waits until the caller holds the lock.
func (s *lockServer) Lock(ctx context.Context, r *pb.LockRequest) (*pb.LockResponse, error) {
	ctx, done := s.untilStopping(ctx)
	defer done()
	l, err := s.contend(ctx, r.GetName(), r.GetLease(), concurrency.ErrSessionExpired)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	defer l.close()
	m := concurrency.NewMutex(l.session, string(r.GetName()))
	err = m.Lock(l.ctx)
	if err == nil {
		err = s.verifyOwner(l.ctx, m, string(r.GetName()))
	}
	if err != nil {
		s.revokeOwnLease(l.session, r.GetLease())
		return nil, clientError(l.ctx, err)
	}
	return &pb.LockResponse{Header: m.Header(), Key: []byte(m.Key())}, nil
}

// verifyOwner returns nil if m holds the lock and its caller still waits. After a wait the library
// checks only that the key exists, but another call with the same TTL lease may have put it again,
// behind others. If the caller has left, verifyOwner deletes a key that this call has put without a
// wait. After a wait another call with the same lease may hold the lock by this key, so it stays.
func (s *Services) verifyOwner(ctx context.Context, m *concurrency.Mutex, name string) error {
	if err := ctx.Err(); err != nil {
		owner := m.IsOwner()
		if owner.GetCompare().GetCreateRevision() == m.Header().GetRevision() { // this call has put the key
			_ = m.Unlock(s.client.Ctx()) // if it fails, the key ends with its TTL lease
		}
		return err
	}
	resp, err := s.client.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpGet(name+"/", clientv3.WithFirstCreate()...)).Commit()
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return concurrency.ErrSessionExpired
	}
	if first := resp.Responses[0].GetResponseRange().GetKvs(); len(first) != 1 || string(first[0].GetKey()) != m.Key() {
		return concurrency.ErrSessionExpired
	}
	return nil
}

// Unlock deletes the key of a lock.
func (s *lockServer) Unlock(ctx context.Context, r *pb.UnlockRequest) (*pb.UnlockResponse, error) {
	resp, err := s.client.Delete(ctx, string(r.GetKey()))
	if err != nil {
		return nil, clientError(ctx, err)
	}
	return &pb.UnlockResponse{Header: resp.Header}, nil
}

// contender is one call that waits for a lock or an election. The library waits until the keys
// before the call's own are deleted, and checks its own key only then. A contender watches its
// own key all the time, and ends the wait when the key is deleted: its TTL lease has ended, or
// another call with the same lease has given up.
type contender struct {
	session *concurrency.Session
	ctx     context.Context // ends when the key is deleted
	close   func()          // releases everything; the caller must call it
}

// keyLostError is the cause of a contender's end after its key was deleted.
type keyLostError struct{ error }

// contend returns a contender for name with a TTL lease, or with a new one if lease is 0. lost is
// the client's error if the key is deleted.
func (s *Services) contend(ctx context.Context, name []byte, lease int64, lost error) (*contender, error) {
	ctx, end := context.WithCancelCause(ctx)
	base, cancel := context.WithCancel(s.client.Ctx())
	l := &contender{ctx: ctx, close: func() { end(nil); cancel() }}
	watcher := &ownKeyWatcher{Watcher: s.client.Watcher, look: s.client, start: s.wg.Go, ctx: ctx, lost: func() { end(keyLostError{lost}) }}
	client := clientv3.NewCtxClient(base)
	client.KV, client.Lease, client.Watcher = contenderKV{s.client.KV, ctx}, s.client.Lease, watcher
	session, err := newSession(ctx, client, lease)
	if err != nil {
		l.close()
		return nil, err
	}
	l.session, watcher.key = session, fmt.Sprintf("%s/%x", name, session.Lease())
	return l, nil
}

// ownKeyWatcher watches the call's own key from the library's first watch on. A call that need
// not wait watches nothing.
type ownKeyWatcher struct {
	clientv3.Watcher
	look  clientv3.KV
	start func(func())    // starts a goroutine
	ctx   context.Context // of the contender
	key   string
	lost  func()
	once  sync.Once
}

// Watch implements clientv3.Watcher.
func (w *ownKeyWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.once.Do(func() { w.start(w.watchOwn) })
	return w.Watcher.Watch(ctx, key, opts...)
}

// watchOwn returns when the key is deleted or the contender ends. When it begins, the key exists
// or was deleted after the library has put it.
func (w *ownKeyWatcher) watchOwn() {
	for resp := range w.Watcher.Watch(w.ctx, w.key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify()) {
		if resp.Created {
			// The watch does not show a deletion before its start. This member has applied the put.
			if got, err := w.look.Get(w.ctx, w.key, clientv3.WithCountOnly(), clientv3.WithSerializable()); err == nil && got.Count == 0 {
				w.lost()
			}
		}
		if len(resp.Events) > 0 {
			w.lost()
		}
	}
}

// contenderKV deletes nothing after the key was lost. At the end of a wait the library deletes
// its key by name, and another call with the same TTL lease may have put that key again.
type contenderKV struct {
	clientv3.KV
	ctx context.Context
}

// Delete implements clientv3.KV.
func (kv contenderKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	if _, lost := errors.AsType[keyLostError](context.Cause(kv.ctx)); lost {
		return new(clientv3.DeleteResponse), nil
	}
	return kv.KV.Delete(ctx, key, opts...)
}
