package kvnode

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// said is a log that may be written to and looked at.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.buf.String(), text)
}

// A trace for which there is no room ends, and its member serves on.
func TestALeaseTraceWithoutRoomEndsAlone(t *testing.T) {
	var log said
	inCluster(t, 1, func(cfg *Config) {
		cfg.LeaseTrace, cfg.Logger = "/dev/full", slog.New(slog.NewTextHandler(&log, nil))
	}, func(t *testing.T, c *cluster) {
		n := c.leader()
		time.Sleep(2 * time.Second)
		c.put(n, "a", "1")
		if n := log.count("the trace of the lease has ended"); n != 1 {
			t.Errorf("its end is logged %d times, want once", n)
		}
	})
}
