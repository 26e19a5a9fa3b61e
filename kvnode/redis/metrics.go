package redis

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxPrefixes limits the label values of contention. Other prefixes count as "other".
const maxPrefixes = 32

// metrics are the gateway's.
type metrics struct {
	commands *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	locks    *prometheus.CounterVec
	waits    *prometheus.CounterVec
	unknown  prometheus.Counter
	// unrevoked are the leases left to end by themselves.
	unrevoked prometheus.Counter
	refused   prometheus.Counter
	conns     prometheus.Gauge

	mu       sync.Mutex
	prefixes map[string]bool
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kvnode", Subsystem: "redis", Name: name, Help: help}
	}
	return &metrics{
		commands: prometheus.NewCounterVec(opts("commands_total", "Commands by name and result."), []string{"command", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kvnode", Subsystem: "redis", Name: "command_duration_seconds", Help: "Latency of GET, SET and EVAL.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}, []string{"command"}),
		locks:     prometheus.NewCounterVec(opts("locks_total", "Steps of the lock pattern: acquired, contended, renewed, renewal_failed, release_refused."), []string{"step"}),
		waits:     prometheus.NewCounterVec(opts("lock_contention_total", "Locks that were held already, by the key's prefix up to a colon or slash."), []string{"prefix"}),
		unknown:   prometheus.NewCounter(opts("unknown_outcomes_total", "Writes with an unknown outcome.")),
		unrevoked: prometheus.NewCounter(opts("leases_left_total", "TTL leases that were left to end by themselves, as no key has them, or a write with an unknown outcome.")),
		refused:   prometheus.NewCounter(opts("connections_refused_total", "Connections above the limit.")),
		conns: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "kvnode", Subsystem: "redis", Name: "connections", Help: "Open connections.",
		}),
		prefixes: make(map[string]bool),
	}
}

// register registers the metrics.
func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.commands, m.latency, m.locks, m.waits, m.unknown, m.unrevoked, m.refused, m.conns} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("redis: register the metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) command(name string, failed bool, took time.Duration) {
	result := "ok"
	if failed {
		result = "error"
	}
	m.commands.WithLabelValues(name, result).Inc()
	switch name {
	case "EVALSHA":
		name = "EVAL"
	case "GET", "SET", "EVAL":
	default:
		return
	}
	m.latency.WithLabelValues(name).Observe(took.Seconds())
}

func (m *metrics) contended(key string) {
	prefix := ""
	if i := strings.IndexAny(key, ":/"); i > 0 {
		prefix = strings.ToValidUTF8(key[:min(i, 64)], "?")
	}
	m.mu.Lock()
	if !m.prefixes[prefix] && len(m.prefixes) < maxPrefixes {
		m.prefixes[prefix] = true
	}
	if !m.prefixes[prefix] {
		prefix = "other"
	}
	m.mu.Unlock()
	m.waits.WithLabelValues(prefix).Inc()
}

// Steps of the lock pattern.
const (
	acquired  = "acquired"
	contended = "contended"
	renewed   = "renewed"
	// lost is a renewal by a caller that does not hold the lock any more.
	lost = "renewal_failed"
	// refused is a release by a caller that does not hold the lock. It may never have had it: redsync releases after
	// each attempt that has failed.
	refused = "release_refused"
)

// lock records a step of the lock pattern once the transaction is committed. The log line has a part of the owner's
// token, as all of it would release the lock.
func (t *tx) lock(step, key, owner string) {
	t.done = append(t.done, func() {
		t.s.metrics.locks.WithLabelValues(step).Inc()
		level := slog.LevelDebug
		switch step {
		case contended:
			t.s.metrics.contended(key)
			return
		case renewed:
			return
		case lost:
			level = slog.LevelWarn
		}
		if !t.s.cfg.Log.Enabled(t.ctx, level) {
			return
		}
		t.s.logLimit.Do(func() {
			t.s.cfg.Log.Log(t.ctx, level, "step of a lock", "step", step, "key", key[:min(64, len(key))], "token", owner[:min(4, len(owner)/2)], "took", time.Since(t.began))
		})
	})
}
