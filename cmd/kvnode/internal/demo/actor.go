package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/linz"
)

// keyPrefix begins every key that is recorded.
const keyPrefix = "story/"

// cast is the set of clients of the story, with the record of their operations.
type cast struct {
	recorder *linz.Recorder
	keys     *linz.Keys
	// writes and reads count the acknowledged operations.
	writes, reads atomic.Int64

	mu struct {
		sync.Mutex
		actors []*actor
	}
}

const (
	// slots is the number of keys that the load works on at one time.
	slots = 5
	// opsPerKey keeps each key's history small enough to be judged at once.
	opsPerKey = 400
)

func newCast() *cast {
	return &cast{recorder: linz.NewRecorder(), keys: linz.NewKeys(keyPrefix+"load", slots, opsPerKey)}
}

// actor is one client that records each of its operations. It belongs to one
// goroutine at a time.
type actor struct {
	id     int
	cast   *cast
	client linz.EtcdClient
	count  int // writes so far, for values that are unique

	paths  map[string]int // reads by path
	leased []leased
}

// leased is a read that a member has served under its lease in a term, at an
// instant between two readings of this process's clock.
type leased struct {
	term             uint64
	called, returned time.Time
}

func (c *cast) actor() *actor {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &actor{id: len(c.mu.actors), cast: c, client: linz.NewEtcdClient(c.recorder), paths: make(map[string]int)}
	c.mu.actors = append(c.mu.actors, a)
	return a
}

// at selects the member of the next request.
func (a *actor) at(c *client) *linz.EtcdClient {
	a.client.To, a.client.Name = c.Client, c.m.Name
	return &a.client
}

// get reads a key. mode must not be serializable, since reads are recorded as linearizable.
func (a *actor) get(ctx context.Context, c *client, key, mode string) (kvclient.Answer, error) {
	got, err := a.at(c).Get(inMode(ctx, mode), key)
	if err != nil {
		return got, err
	}
	a.cast.reads.Add(1)
	a.paths[got.Path]++
	if got.Path == pathLease {
		a.leased = append(a.leased, leased{got.Term, got.Called, got.Returned})
	}
	return got, nil
}

// value returns a value that no other write uses.
func (a *actor) value() string {
	a.count++
	return fmt.Sprintf("%d.%d", a.id, a.count)
}

// wrote counts a write that was acknowledged.
func (a *actor) wrote(err error) error {
	if err == nil {
		a.cast.writes.Add(1)
	}
	return err
}

func (a *actor) put(ctx context.Context, c *client, key string) (value string, err error) {
	value = a.value()
	_, err = a.at(c).Put(ctx, key, value)
	return value, a.wrote(err)
}

func (a *actor) remove(ctx context.Context, c *client, key string) error {
	return a.wrote(a.at(c).Delete(ctx, key))
}

// swap writes if the key's mod revision is as expected.
func (a *actor) swap(ctx context.Context, c *client, key string, expect int64) error {
	_, err := a.at(c).CAS(ctx, key, a.value(), expect)
	return a.wrote(err)
}

const (
	// workers are the clients of the load.
	workers = 6
	// thinkTime is the pause between two operations of a worker.
	thinkTime = 6 * time.Millisecond
	// opPatience is the timeout of an operation. The worker then moves to another member.
	opPatience = 1500 * time.Millisecond
)

// load is a set of clients that read and write until they are stopped.
type load struct {
	stopping chan struct{}
	once     sync.Once
	done     sync.WaitGroup
}

// startLoad lets clients begin, spread over the members.
func startLoad(c *cast, clients []*client) *load {
	l := &load{stopping: make(chan struct{})}
	for i := range workers {
		w := &worker{actor: c.actor(), clients: clients, at: i % len(clients), seen: make(map[string]int64)}
		l.done.Go(func() { w.run(l.stopping) })
	}
	return l
}

// stop waits until the running operations have finished.
func (l *load) stop() {
	l.once.Do(func() { close(l.stopping) })
	l.done.Wait()
}

// worker is one client of the load.
type worker struct {
	*actor
	clients []*client
	at      int              // the member it talks to
	seen    map[string]int64 // mod revisions of keys as last read
}

func (w *worker) run(stopping <-chan struct{}) {
	pause := time.NewTicker(thinkTime)
	defer pause.Stop()
	for {
		select {
		case <-stopping:
			return
		case <-pause.C:
			w.turn()
		}
	}
}

// turn does one operation, and moves to another member if it fails.
func (w *worker) turn() {
	ctx, cancel := context.WithTimeout(context.Background(), opPatience)
	defer cancel()
	if w.step(ctx) != nil {
		w.at = (w.at + 1) % len(w.clients)
	}
}

// step does one operation: mostly a read.
func (w *worker) step(ctx context.Context) error {
	key := w.cast.keys.Key(rand.IntN(w.cast.keys.Len()))
	c := w.clients[w.at]
	switch n := rand.IntN(100); {
	case n < 25:
		_, err := w.put(ctx, c, key)
		return err
	case n < 30:
		return w.remove(ctx, c, key)
	case n < 40:
		return w.swap(ctx, c, key, w.seen[key])
	default:
		got, err := w.get(ctx, c, key, w.mode())
		if err == nil {
			w.seen[key] = got.Mod
		}
		return err
	}
}

// mode mostly returns the default mode.
func (w *worker) mode() string {
	switch n := rand.IntN(100); {
	case n < 8:
		return modeReadIndex
	case n < 10:
		return modeLog
	default:
		return modeAuto
	}
}
