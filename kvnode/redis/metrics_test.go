package redis_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leaderlease/go/kvnode/redis"
)

func TestMetricsOfLocks(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	t.Run("steps", func(t *testing.T) {
		c := dial(t, startGateway(t, startCluster(t), func(cfg *redis.Config) {
			cfg.Registerer, cfg.Log = registry, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}))
		c.want("OK", "SET", "a:1", "secretsecret", "NX", "PX", "30000")
		c.want("nil", "SET", "a:1", "other", "NX", "PX", "30000")
		c.want("1", "EVAL", renew, "1", "a:1", "secretsecret", "30000")
		c.want("0", "EVAL", renew, "1", "a:1", "other", "30000")
		c.want("0", "EVAL", release, "1", "a:1", "other")
		for i := range 40 { // more prefixes than are told apart
			c.want("OK", "SET", fmt.Sprintf("p%d:x", i), "me", "NX", "PX", "30000")
			c.want("nil", "SET", fmt.Sprintf("p%d:x", i), "you", "NX", "PX", "30000")
		}
	})
	const want = `
# HELP kvnode_redis_locks_total Steps of the lock pattern: acquired, contended, renewed, renewal_failed, release_refused.
# TYPE kvnode_redis_locks_total counter
kvnode_redis_locks_total{step="acquired"} 41
kvnode_redis_locks_total{step="contended"} 41
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
	if text := log.String(); strings.Contains(text, "secretsecret") || !strings.Contains(text, "key=a:1 token=secr") {
		t.Errorf("the log must have the token's beginning only: %.500s", text)
	}
}
