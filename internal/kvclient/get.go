package kvclient

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Answer is what a request for one key was told.
type Answer struct {
	// Value and Mod, the mod revision, are what the key holds after the request;
	// Mod is 0 where there is no such key.
	Value string
	Mod   int64
	// Revision is the store's, Term the member's.
	Revision int64
	Term     uint64
	Served
	// Called and Returned are readings of this process's clock.
	Called, Returned time.Time
}

// Get reads one key.
func Get(ctx context.Context, c *clientv3.Client, key string, opts ...clientv3.OpOption) (Answer, error) {
	var a Answer
	ctx = WithServed(ctx, &a.Served)
	a.Called = time.Now()
	resp, err := c.Get(ctx, key, opts...)
	a.Returned = time.Now()
	if err != nil {
		return a, err
	}
	a.Revision, a.Term = resp.Header.GetRevision(), resp.Header.GetRaftTerm()
	if len(resp.Kvs) > 0 {
		a.Value, a.Mod = string(resp.Kvs[0].GetValue()), resp.Kvs[0].GetModRevision()
	}
	return a, nil
}
