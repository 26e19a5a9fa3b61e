package concurrency

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// steadyKV finishes transactions that have begun: whoever cancels one does not
// know whether there is a key to delete.
type steadyKV struct{ clientv3.KV }

// Txn implements clientv3.KV. The API bounds its time.
func (kv steadyKV) Txn(ctx context.Context) clientv3.Txn {
	return kv.KV.Txn(context.WithoutCancel(ctx))
}

// idleLease keeps nothing alive. The library's sessions begin with that, for which
// it has a stream and a ticker, and ours give it up at once.
type idleLease struct{ clientv3.Lease }

// KeepAlive implements clientv3.Lease.
func (idleLease) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	ended := make(chan *clientv3.LeaseKeepAliveResponse)
	close(ended)
	return ended, nil
}

// ledWatcher cuts watches when there is no leader for too long: without one
// nothing is deleted, so who waits for that had better wait at another member.
type ledWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (w ledWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(clientv3.WithRequireLeader(ctx), key, opts...)
}
