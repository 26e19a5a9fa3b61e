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
	// Clients is the number of clients, each with one request at a time. With
	// those that Load.Client adds, at most linz.MaxClients.
	Clients int
	// Slots is the number of keys in use at a time.
	Slots int
	// KeyOps is after how many operations a slot takes a new key.
	KeyOps int
	// Think is the mean pause of a client between two requests.
	Think time.Duration
	// Streams has every other client send by streams (package fastkv) and not by calls.
	Streams bool
	// Timeout bounds one request.
	Timeout time.Duration
	// Seed makes the choices repeatable; their timing is not.
	Seed uint64
}

// Prefix is in front of all keys.
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

// Client returns a client of the member numbered i, for the caller's own use. It sends by calls,
// or by streams if the load has some and byStreams.
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

// Failed counts the requests that were not answered, or with an error.
func (l *Load) Failed() int64 { return l.failed.Load() }

// Newest returns the newest revision that any client has seen, in a read or in the
// answer to a write. No later read may show less.
func (l *Load) Newest() int64 { return l.newest.Load() }

// Paths counts the reads that each path has served, by the server's own word.
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

// Hold waits until no request is under way, and has none begin until release.
func (l *Load) Hold() (release func()) {
	l.hold.Lock()
	return l.hold.Unlock
}

// told notes a revision for Newest.
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

// Stop ends the load and returns what was recorded. The clients that were made
// with Client must be idle.
func (l *Load) Stop() ([]linz.Op, error) {
	l.stop()
	l.wg.Wait()
	return l.recorder.History(), errors.Join(kvclient.Close(l.conns), kvclient.Close(l.streams))
}
