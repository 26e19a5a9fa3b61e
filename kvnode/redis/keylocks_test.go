package redis_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/redis"
)

// Clients of one gateway that change one key wait for each other, so none gives up.
func TestHotKey(t *testing.T) {
	const clients, rounds = 150, 2
	addr := startGateway(t, startCluster(t))
	var all sync.WaitGroup
	for range clients {
		c := dial(t, addr)
		all.Go(func() {
			for range rounds {
				if got := c.try("INCR", "hot"); got[0] == '-' {
					t.Errorf("INCR: %s", got)
				}
			}
		})
	}
	all.Wait()
	dial(t, addr).want(strconv.Itoa(clients*rounds), "GET", "hot")
}

// Clients that SET a key without a pause leave others turns to change it.
func TestHotKeyWithSets(t *testing.T) {
	addr := startGateway(t, startCluster(t))
	var all sync.WaitGroup
	var done atomic.Bool
	for range 50 {
		c := dial(t, addr)
		all.Go(func() {
			for !done.Load() {
				if got := c.try("SET", "hot", "1"); got != "OK" {
					t.Errorf("SET: %s", got)
				}
			}
		})
	}
	c := dial(t, addr)
	for range 20 {
		if got := c.do("INCR", "hot"); got[0] == '-' {
			t.Errorf("INCR: %s", got)
		}
	}
	done.Store(true)
	all.Wait()
}

// stuckKV answers no transaction until its context ends.
type stuckKV struct {
	clientv3.KV

	called chan struct{}
}

type stuckTxn struct {
	clientv3.Txn

	ctx    context.Context
	called chan struct{}
}

func (kv stuckKV) Txn(ctx context.Context) clientv3.Txn { return stuckTxn{nil, ctx, kv.called} }

func (x stuckTxn) If(...clientv3.Cmp) clientv3.Txn  { return x }
func (x stuckTxn) Then(...clientv3.Op) clientv3.Txn { return x }

func (x stuckTxn) Commit() (*clientv3.TxnResponse, error) {
	x.called <- struct{}{}
	<-x.ctx.Done()
	return nil, x.ctx.Err()
}

// A command waits for another one's key until its own time is over, and reads do not wait.
func TestWaitForKeyEnds(t *testing.T) {
	etcd := startCluster(t)
	kv := stuckKV{etcd.KV, make(chan struct{}, 3)}
	addr := startGateway(t, etcd, func(c *redis.Config) { c.KV, c.Timeout = kv, time.Second })
	first, second := dial(t, addr), dial(t, addr)
	first.send(encode("INCR", "k"))
	<-kv.called
	second.want("nil", "GET", "k")
	second.send(encode("INCR", "k"))
	if got := first.read(); got[:8] != "-UNKNOWN" {
		t.Errorf("INCR without an answer: %s", got)
	}
	if got := second.read(); got[:8] != "-UNKNOWN" && !strings.HasPrefix(got, "-ERR nothing was written: ") {
		t.Errorf("INCR that waits: %s", got)
	}
	second.want("-UNKNOWN…", "SET", "k", "v") // the key is free
}
