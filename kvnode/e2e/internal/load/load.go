// Package load runs reads and writes against a cluster and records the requests and
// answers of its clients for package linz.
package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/fastkv"
)

// Config describes a load.
type Config struct {
	// Clients is the number of clients, each with one request at a time. Together with the
	// clients of Load.Client they must not exceed linz.MaxClients.
	Clients int
	// Slots is the number of keys in use at a time.
	Slots int
	// KeyOps is the number of operations after which a slot takes a new key.
	KeyOps int
	// Think is the mean pause of a client between two requests.
	Think time.Duration
	// Streams makes every other client send by streams (package fastkv) instead of unary calls.
	Streams bool
	// Timeout is the timeout of one request.
	Timeout time.Duration
	// Seed makes the choices repeatable; their timing is not.
	Seed uint64
}

// Prefix begins every key.
const Prefix = "load/"

// Load is a running load.
type Load struct {
	cfg      Config // immutable
	Keys     *linz.Keys
	recorder *linz.Recorder
	members  []*testcluster.Member
	conns    []*clientv3.Client // one a member
	streams  []*clientv3.Client // likewise, for clients that send by streams

	hold                  sync.RWMutex // see Hold
	reads, writes, failed atomic.Int64
	newest                atomic.Int64 // see Newest

	mu struct {
		sync.Mutex
		paths map[string]int // see Paths
	}

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Start connects to the members and starts the clients.
func Start(ctx context.Context, members []*testcluster.Member, cfg Config) (*Load, error) {
	l := &Load{
		cfg:      cfg,
		Keys:     linz.NewKeys(Prefix, cfg.Slots, cfg.KeyOps),
		recorder: linz.NewRecorder(),
		members:  members,
	}
	l.mu.paths = make(map[string]int)
	err := l.connect(&l.conns)
	if cfg.Streams {
		err = errors.Join(err, l.connect(&l.streams))
	}
	for _, conn := range l.streams {
		err = errors.Join(err, fastkv.Use(conn))
	}
	if err != nil {
		return nil, errors.Join(err, kvclient.Close(l.conns), kvclient.Close(l.streams))
	}
	ctx, l.stop = context.WithCancel(ctx)
	for i := range cfg.Clients {
		w := &worker{
			l:      l,
			id:     i,
			random: rand.New(rand.NewPCG(cfg.Seed, uint64(i))),
			client: linz.NewEtcdClient(l.recorder),
			seen:   make(map[string]int64),
			conns:  l.conns,
		}
		if cfg.Streams && i%2 == 1 {
			w.conns = l.streams
		}
		l.wg.Go(func() { w.run(ctx) })
	}
	return l, nil
}

// connect makes a client of each member.
func (l *Load) connect(to *[]*clientv3.Client) error {
	for _, m := range l.members {
		conn, err := m.Client()
		if err != nil {
			return err
		}
		*to = append(*to, conn)
	}
	return nil
}

// Client returns a client of member i for the caller's own use. It sends unary calls, or
// streams if the load has streams and byStreams is set.
func (l *Load) Client(i int, byStreams bool) *linz.EtcdClient {
	c := linz.NewEtcdClient(l.recorder)
	c.To, c.Name = l.conns[i], l.members[i].Name
	if byStreams && l.cfg.Streams {
		c.To = l.streams[i]
	}
	return &c
}

// Reads counts the reads that were answered.
func (l *Load) Reads() int64 { return l.reads.Load() }

// Writes counts the writes that were answered.
func (l *Load) Writes() int64 { return l.writes.Load() }

// Failed counts the requests without an answer, or with an error.
func (l *Load) Failed() int64 { return l.failed.Load() }

// Newest returns the newest revision that any client has seen, in a read or in the
// answer to a write. No later read may show less.
func (l *Load) Newest() int64 { return l.newest.Load() }

// Paths counts the reads by path, as reported by the server.
func (l *Load) Paths() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.mu.paths)
}

func (l *Load) served(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.paths[path]++
}

// Hold waits until no request is running, and blocks new ones until release.
func (l *Load) Hold() (release func()) {
	l.hold.Lock()
	return l.hold.Unlock
}

// told records a revision for Newest.
func (l *Load) told(revision int64) {
	for newest := l.newest.Load(); revision > newest && !l.newest.CompareAndSwap(newest, revision); {
		newest = l.newest.Load()
	}
}

// WaitProgress waits until n more reads and n more writes were answered.
func (l *Load) WaitProgress(ctx context.Context, n int64) error {
	reads, writes := l.Reads()+n, l.Writes()+n
	for l.Reads() < reads || l.Writes() < writes {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d reads and %d writes are missing of %d each: %w",
				max(0, reads-l.Reads()), max(0, writes-l.Writes()), n, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Stop ends the load and returns the history. Clients made with Client must be
// idle.
func (l *Load) Stop() ([]linz.Op, error) {
	l.stop()
	l.wg.Wait()
	return l.recorder.History(), errors.Join(kvclient.Close(l.conns), kvclient.Close(l.streams))
}

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
		// The worker moves to another member after a failed request, and at random, so that
		// each member gets requests.
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

// Pauses measures the longest time without an answer.
type Pauses struct {
	l    *Load
	stop chan struct{}
	wg   sync.WaitGroup

	failed int64 // before it began
	// The measuring goroutine writes them.
	reads, writes pause
}

// pause is the longest time without an answer so far.
type pause struct {
	count   int64
	since   time.Time
	longest time.Duration
}

// look records the number of answers at now.
func (p *pause) look(count int64, now time.Time) {
	p.longest = max(p.longest, now.Sub(p.since))
	if count != p.count {
		p.count, p.since = count, now
	}
}

// Pauses starts a measurement.
func (l *Load) Pauses() *Pauses {
	now := time.Now()
	p := &Pauses{
		l: l, stop: make(chan struct{}), failed: l.Failed(),
		reads: pause{count: l.Reads(), since: now}, writes: pause{count: l.Writes(), since: now},
	}
	p.wg.Go(p.run)
	return p
}

func (p *Pauses) run() {
	often := time.NewTicker(5 * time.Millisecond)
	defer often.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-often.C:
			p.reads.look(p.l.Reads(), now)
			p.writes.look(p.l.Writes(), now)
		}
	}
}

// End returns the longest times without an answered read and without an answered write, and the
// number of requests that have failed meanwhile.
func (p *Pauses) End() (reads, writes time.Duration, failed int64) {
	close(p.stop)
	p.wg.Wait()
	return p.reads.longest, p.writes.longest, p.l.Failed() - p.failed
}
