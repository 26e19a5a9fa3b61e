package redis_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/redis"
)

// switchKV sends transactions to another KV while it is on.
type switchKV struct {
	clientv3.KV

	other clientv3.KV
	on    *atomic.Bool
}

func (kv switchKV) Txn(ctx context.Context) clientv3.Txn {
	if kv.on.Load() {
		return kv.other.Txn(ctx)
	}
	return kv.KV.Txn(ctx)
}

// failSteps makes writes fail.
func failSteps(c *client, failing *atomic.Bool) {
	failing.Store(true)
	c.want("-UNKNOWN…", "EVAL", renew, "1", "a:1", "secretsecret", "30000")
	c.want("-UNKNOWN…", "SET", "b", "secretsecret", "PX", "30000", "nx")
	c.want("-UNKNOWN…", "KV.LOCK", "b", "secretsecret", "PX", "30000")
	c.want("-UNKNOWN…", "EVAL", redlockLock, "2", "b", "c", "secretsecret", "30000")
	c.want("-UNKNOWN…", "EVAL", release, "1", "a:1", "secretsecret")
	c.want("-UNKNOWN…", "SET", "b", "x")
	failing.Store(false)
}

func TestMetricsOfLocks(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	t.Run("steps", func(t *testing.T) {
		etcd := startCluster(t)
		kv := &lossyKV{KV: etcd.KV, err: context.DeadlineExceeded, drop: true}
		var failing atomic.Bool
		c := dial(t, startGateway(t, etcd, func(cfg *redis.Config) {
			cfg.KV = switchKV{etcd.KV, kv, &failing}
			cfg.Registerer, cfg.Log = registry, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}))
		c.want("OK", "SET", "a:1", "secretsecret", "NX", "PX", "30000")
		c.want("nil", "SET", "a:1", "other", "NX", "PX", "30000")
		c.want("1", "EVAL", renew, "1", "a:1", "secretsecret", "30000")
		c.want("0", "EVAL", renew, "1", "a:1", "other", "30000")
		c.want("0", "EVAL", release, "1", "a:1", "other")
		failSteps(c, &failing)
		for i := range 40 { // more prefixes than are told apart
			c.want("OK", "SET", fmt.Sprintf("p%d:x", i), "me", "NX", "PX", "30000")
			c.want("nil", "SET", fmt.Sprintf("p%d:x", i), "you", "NX", "PX", "30000")
		}
	})
	const want = `
# HELP kvnode_redis_locks_total Steps of the lock pattern: acquired, contended, acquire_failed, which are all attempts to acquire, renewed, renewal_failed, lost, release_refused. Failed ones have an error.
# TYPE kvnode_redis_locks_total counter
kvnode_redis_locks_total{step="acquire_failed"} 3
kvnode_redis_locks_total{step="acquired"} 41
kvnode_redis_locks_total{step="contended"} 41
kvnode_redis_locks_total{step="lost"} 1
kvnode_redis_locks_total{step="release_refused"} 1
kvnode_redis_locks_total{step="renewal_failed"} 1
kvnode_redis_locks_total{step="renewed"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kvnode_redis_locks_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "kvnode_redis_lock_contention_total"); err != nil || n != 33 {
		t.Errorf("%d prefixes, %v, want 32 and the others", n, err)
	}
	text := log.String()
	for _, want := range []string{"DEBUG msg=\"step of a lock\" step=acquired key=a:1 owner=secr took=", "WARN msg=\"step of a lock\" step=lost key=a:1 owner=ot took=", "WARN msg=\"step of a lock\" step=renewal_failed key=a:1 owner=secr took="} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %s: %.2000s", want, text)
		}
	}
	if strings.Contains(text, "secretsecret") {
		t.Errorf("the log has an owner: %.2000s", text)
	}
}
