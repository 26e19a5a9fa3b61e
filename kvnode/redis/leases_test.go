package redis

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// grants grants leases.
type grants struct {
	clientv3.Lease

	last clientv3.LeaseID
}

func (g *grants) Grant(_ context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	g.last++
	return &clientv3.LeaseGrantResponse{ID: g.last, TTL: ttl}, nil
}

// At its limit, the gateway forgets leases that have ended for new ones.
func TestLeasesAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{KV: struct{ clientv3.KV }{}, Lease: &grants{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.limits.leases = 2000
		grant := func(n int, ttl int64) {
			for range n {
				if _, err := s.leases.grant(t.Context(), ttl); err != nil {
					t.Fatal(err)
				}
			}
		}
		grant(2100, 1)
		time.Sleep(pruneInterval + time.Second)
		grant(100, 1000)
		if n := len(s.leases.owned); n != 100 {
			t.Errorf("%d leases are remembered, want the new 100", n)
		}
	})
}
