package server

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// WatchProgressInterval reaches the watchers that ask for it.
func TestWatchProgressInterval(t *testing.T) {
	s := solo(t, func(c *Config) { c.API.WatchProgressInterval = 100 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r := range client(t, s).Watch(ctx, "key", clientv3.WithProgressNotify()) {
		if r.IsProgressNotify() {
			return
		}
	}
	t.Error("a watcher heard nothing in a minute, want how far it is every 100ms")
}

// With LeaseCheckpoint what is left of a TTL lease is replicated.
func TestTTLCheckpoints(t *testing.T) {
	s := solo(t, func(c *Config) { c.Node.TTLCheckpoint = time.Second })
	if _, err := client(t, s).Grant(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		_, body := page(t, s, "/metrics")
		if strings.Contains(body, "\nkvnode_ttl_checkpoints_total ") && !strings.Contains(body, "\nkvnode_ttl_checkpoints_total 0\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("kvnode_ttl_checkpoints_total is 0 after a minute, want a checkpoint each second")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
