package redis

import (
	"fmt"
	"log/slog"
	"slices"
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
		locks:     prometheus.NewCounterVec(opts("locks_total", "Steps of the lock pattern: acquired, contended, acquire_failed, which are all attempts to acquire, renewed, renewal_failed, lost, release_refused. Failed ones have an error."), []string{"step"}),
		waits:     prometheus.NewCounterVec(opts("lock_contention_total", "Locks that were held already, by the key's prefix up to a colon or slash."), []string{"prefix"}),
		unknown:   prometheus.NewCounter(opts("unknown_outcomes_total", "Writes with an unknown outcome.")),
		unrevoked: prometheus.NewCounter(opts("leases_left_total", "TTL leases left to end by themselves: those of other clients, or after an unknown outcome or a failed revocation.")),
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
	acquired      = "acquired"
	contended     = "contended"
	acquireFailed = "acquire_failed" // with an error
	renewed       = "renewed"
	renewalFailed = "renewal_failed" // with an error
	// lost is a renewal by a caller that does not hold the lock any more.
	lost = "lost"
	// refused is a release by a caller that does not hold the lock. It may never have had it: redsync releases after
	// each attempt that has failed.
	refused = "release_refused"
)

// recordStep records a step of the lock pattern once the transaction is committed.
func (t *tx) recordStep(step, key, owner string) {
	t.done = append(t.done, func() { t.s.step(step, key, owner, t.began, nil) })
}

// failed records the error of a command, if it acquires or renews a lock.
func (s *Server) failed(args []string, began time.Time, err error) {
	switch name := strings.ToUpper(args[0]); name {
	case "SET":
		if slices.ContainsFunc(args[3:], func(o string) bool { return strings.EqualFold(o, "NX") }) {
			s.step(acquireFailed, args[1], args[2], began, err)
		}
	case "KV.LOCK":
		s.step(acquireFailed, args[1], args[2], began, err)
	case "EVAL", "EVALSHA":
		do, is := s.scripts.bySHA(args[1])
		if name == "EVAL" {
			do, is = known[normalise(args[1])]
		}
		keys, wrong := scriptKeys(args)
		if is && do.failedStep != "" && wrong == nil && len(keys) > 0 && len(args) > 3+len(keys) {
			s.step(do.failedStep, keys[0], args[3+len(keys)], began, err)
		}
	}
}

// step records a step of the lock pattern. The log line has a part of the owner's token, as all of it would release
// the lock.
func (s *Server) step(step, key, owner string, began time.Time, err error) {
	s.metrics.locks.WithLabelValues(step).Inc()
	level := slog.LevelDebug
	switch step {
	case contended:
		s.metrics.contended(key)
		return
	case renewed:
		return
	case lost, renewalFailed, acquireFailed:
		level = slog.LevelWarn
	}
	if !s.cfg.Log.Enabled(s.ctx, level) {
		return
	}
	attrs := []any{"step", step, "key", key[:min(64, len(key))], "owner", owner[:min(4, len(owner)/2)], "took", time.Since(began)}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.logLimit.Do(func() { s.cfg.Log.Log(s.ctx, level, "step of a lock", attrs...) })
}
