package redis

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxPrefixes limits the label values of contention. Other prefixes count as "other".
const maxPrefixes = 32

// metrics are the gateway's, a prometheus.Collector.
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
		unrevoked: prometheus.NewCounter(opts("leases_left_total", "TTL leases without key that were left to end by themselves.")),
		refused:   prometheus.NewCounter(opts("connections_refused_total", "Connections above the limit.")),
		conns: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "kvnode", Subsystem: "redis", Name: "connections", Help: "Open connections.",
		}),
		prefixes: make(map[string]bool),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.commands, m.latency, m.locks, m.waits, m.unknown, m.unrevoked, m.refused, m.conns}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
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

// batch returns a function that counts commands which are one request.
func (m *metrics) batch(name string, n int) func() {
	began := time.Now()
	return func() {
		for range n {
			m.command(name, false, time.Since(began))
		}
	}
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

// acquire records an attempt to take a lock, once its transaction is over.
func (t *tx) acquire(key, owner string, won bool) {
	t.after(func() {
		if !won {
			t.s.metrics.locks.WithLabelValues("contended").Inc()
			t.s.metrics.contended(key)
			return
		}
		t.s.metrics.locks.WithLabelValues("acquired").Inc()
		t.log(slog.LevelDebug, "a lock is acquired", key, owner)
	})
}

// renew records a renewal.
func (t *tx) renew(key, owner string, held bool) {
	t.after(func() {
		if held {
			t.s.metrics.locks.WithLabelValues("renewed").Inc()
			return
		}
		t.s.metrics.locks.WithLabelValues("renewal_failed").Inc()
		t.log(slog.LevelWarn, "a lock is not renewed, its caller has lost it", key, owner)
	})
}

// refuse records a release by a caller that does not hold the lock. It may have lost the lock, or never had it:
// redsync releases after each attempt that has failed.
func (t *tx) refuse(key, owner string) {
	t.after(func() {
		t.s.metrics.locks.WithLabelValues("release_refused").Inc()
		t.log(slog.LevelDebug, "a lock is not released, its caller does not hold it", key, owner)
	})
}

// after runs a function once the transaction is committed.
func (t *tx) after(f func()) {
	t.done = append(t.done, func(committed bool) {
		if committed {
			f()
		}
	})
}

// log logs a step of the lock pattern with a part of the owner's token, as all of it would release the lock.
func (t *tx) log(level slog.Level, text, key, owner string) {
	t.s.cfg.Log.Log(t.ctx, level, text, "key", key, "token", owner[:min(4, len(owner)/2)], "took", time.Since(t.began))
}
