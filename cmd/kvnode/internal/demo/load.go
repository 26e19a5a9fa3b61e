package demo

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// workers are the clients of the load.
	workers = 6
	// thinkTime is between two operations of one of them.
	thinkTime = 6 * time.Millisecond
	// opPatience is how long a client waits before it turns to another member.
	opPatience = 1500 * time.Millisecond
)

// load is clients that read and write until they are stopped.
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

// stop lets the operations under way finish and waits for them.
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

// turn does one operation, and goes to another member if it fails.
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

// mode asks mostly for what a client gets that does not ask.
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
