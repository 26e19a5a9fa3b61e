package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/linz"
)

// worker is one client of a load.
type worker struct {
	l      *Load
	id     int
	random *rand.Rand
	client linz.EtcdClient
	conns  []*clientv3.Client // one a member

	member int              // the one it talks to
	serial int              // of its values
	seen   map[string]int64 // the mod revision of a key as last seen
	failed bool             // the last request
}

// run makes requests until ctx ends.
func (w *worker) run(ctx context.Context) {
	w.member = w.id % len(w.conns)
	for {
		// A request in doubt sends the worker elsewhere, as does chance, so that
		// each member has its share.
		if w.failed || w.random.IntN(200) == 0 {
			w.member = (w.member + 1 + w.random.IntN(len(w.conns)-1)) % len(w.conns)
		}
		w.client.To, w.client.Name = w.conns[w.member], w.l.members[w.member].Name
		w.once(ctx)
		pause := time.Duration(w.random.Int64N(2*int64(w.l.cfg.Think) + 1))
		if w.failed {
			pause += 10 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// once makes one request: half of them read.
func (w *worker) once(ctx context.Context) {
	w.l.hold.RLock()
	defer w.l.hold.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, w.l.cfg.Timeout)
	defer cancel()
	key := w.l.Keys.Key(w.random.IntN(w.l.Keys.Len()))
	w.serial++
	value := fmt.Sprintf("c%d-%d", w.id, w.serial)
	count := &w.l.writes
	var (
		now linz.Version
		err error
	)
	switch n := w.random.IntN(20); {
	case n < 10:
		count = &w.l.reads
		var got kvclient.Answer
		if got, err = w.client.Get(ctx, key); err == nil && got.Path != "" {
			w.l.served(got.Path)
		}
		now.Mod = got.Mod
	case n < 14:
		now, err = w.client.Put(ctx, key, value)
	case n < 18:
		now, err = w.client.CAS(ctx, key, value, w.seen[key])
	default:
		err = w.client.Delete(ctx, key)
	}
	w.failed = err != nil
	if w.failed {
		w.l.failed.Add(1)
		return
	}
	w.l.told(now.Mod)
	w.seen[key] = now.Mod
	count.Add(1)
}
