package lifecycle

import (
	"maps"
	"sync"
	"time"
)

// logInterval is the minimum time between two log lines about the same peer and the same condition. A
// condition that persists would otherwise fill the log.
const logInterval = 30 * time.Second

// maxPeers limits the number of peers with a line in the last logInterval, because peers may connect under any number
// of IDs. Above it nothing is logged about further ones.
const maxPeers = 1024

// LogLimit limits the log lines of one condition. The zero value is ready to use. Its methods are safe
// for concurrent use.
type LogLimit struct {
	mu   sync.Mutex
	next map[uint64]time.Time // by peer ID: no line before this time
}

// Allow reports whether the condition may be logged for peer now. It returns true at most once per
// logInterval.
func (l *LogLimit) Allow(peer uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next[peer]) {
		return false
	}
	if l.next == nil {
		l.next = make(map[uint64]time.Time)
	}
	if len(l.next) >= maxPeers {
		maps.DeleteFunc(l.next, func(_ uint64, next time.Time) bool { return !now.Before(next) })
	}
	if len(l.next) >= maxPeers {
		return false
	}
	l.next[peer] = now.Add(logInterval)
	return true
}

// Reset allows the next line for peer at once, after the condition has cleared.
func (l *LogLimit) Reset(peer uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.next, peer)
}
