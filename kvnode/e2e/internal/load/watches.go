package load

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/testcluster"
)

// Event is one event of a watch.
type Event struct {
	Revision, Create int64
	Key, Value       string // of a long value, its hash
	Deleted          bool
}

// longest is how much of a value is kept, since each stream keeps all its events.
const longest = 100

// Watches are streams that watch all keys from the first revision on, through
// all faults. Each must see every revision once, in order and in one piece; a store
// leaves no revision out.
type Watches struct {
	streams []*stream
	conns   []*clientv3.Client
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// stream is one watcher with its events.
type stream struct {
	name   string
	conn   *clientv3.Client
	random *rand.Rand
	reopen bool // now and then, from where it got to

	mu struct {
		sync.Mutex
		seen     []Event
		last     int64 // revision of the last event
		progress int64 // everything up to here was seen, says the server
		opened   int
		err      error // of the first promise that was broken
	}
}

// StartWatches opens two streams at each member and one at any member. The second
// stream of each member is closed and reopened all the time.
func StartWatches(ctx context.Context, c *testcluster.Cluster, seed uint64) (*Watches, error) {
	w := &Watches{}
	for i, m := range c.Members() {
		conn, err := m.Client()
		if err != nil {
			return nil, errors.Join(err, kvclient.Close(w.conns))
		}
		w.add(conn, m.Name, seed+uint64(2*i), false)
		w.streams = append(w.streams, newStream(conn, m.Name+" again", seed+uint64(2*i+1), true))
	}
	conn, err := c.Client()
	if err != nil {
		return nil, errors.Join(err, kvclient.Close(w.conns))
	}
	w.add(conn, "any", seed, false)
	ctx, w.stop = context.WithCancel(ctx)
	for _, s := range w.streams {
		w.wg.Go(func() { s.run(ctx) })
	}
	return w, nil
}

func (w *Watches) add(conn *clientv3.Client, name string, seed uint64, reopen bool) {
	w.conns = append(w.conns, conn)
	w.streams = append(w.streams, newStream(conn, name, seed, reopen))
}

func newStream(conn *clientv3.Client, name string, seed uint64, reopen bool) *stream {
	s := &stream{name: name, conn: conn, random: rand.New(rand.NewPCG(seed, 7)), reopen: reopen}
	s.mu.last = 1 // the revision of an empty store
	return s
}

// run watches until ctx ends.
func (s *stream) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.open(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// open watches from the stream's next revision on. Reopened streams require a leader, so they end
// at each change of leader.
func (s *stream) open(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.reopen {
		ctx, cancel = context.WithTimeout(clientv3.WithRequireLeader(ctx), time.Second+time.Duration(s.random.Int64N(int64(5*time.Second))))
		defer cancel()
	}
	s.mu.Lock()
	next := s.mu.last + 1
	s.mu.progress = 0 // a new stream knows nothing of it
	s.mu.opened++
	s.mu.Unlock()
	for resp := range s.conn.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(next), clientv3.WithProgressNotify()) {
		if resp.Err() != nil {
			return
		}
		s.take(&resp)
	}
}

// take checks and stores one response.
func (s *stream) take(resp *clientv3.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resp.IsProgressNotify() {
		s.mu.progress = max(s.mu.progress, resp.Header.GetRevision())
		if s.mu.progress > s.mu.last {
			s.brokenLocked("progress to revision %d is told before the events after %d", s.mu.progress, s.mu.last)
		}
		return
	}
	before := s.mu.last
	for i, e := range resp.Events {
		rev := e.GetKv().GetModRevision()
		switch {
		case rev <= s.mu.progress:
			s.brokenLocked("an event of revision %d comes after progress to %d", rev, s.mu.progress)
		case i == 0 && rev <= before:
			s.brokenLocked("revision %d comes again, or in pieces, after %d", rev, before)
		case rev != s.mu.last && rev != s.mu.last+1:
			s.brokenLocked("revision %d comes after %d", rev, s.mu.last)
		}
		s.mu.last = rev
		s.mu.seen = append(s.mu.seen, event(e))
	}
}

func event(e *clientv3.Event) Event {
	return Event{
		Revision: e.GetKv().GetModRevision(), Create: e.GetKv().GetCreateRevision(),
		Key: string(e.GetKv().GetKey()), Value: Short(e.GetKv().GetValue()), Deleted: e.GetType() == mvccpb.Event_DELETE,
	}
}

// Short returns the part of a value that Event keeps.
func Short(value []byte) string {
	if len(value) <= longest {
		return string(value)
	}
	return fmt.Sprintf("%x", sha256.Sum256(value))
}

func (s *stream) brokenLocked(format string, args ...any) {
	if s.mu.err == nil {
		s.mu.err = fmt.Errorf("watch %s: %s", s.name, fmt.Sprintf(format, args...))
	}
}

// Stop waits until all streams have seen revision, ends them, and returns the
// history up to there, which must be the same on all streams.
func (w *Watches) Stop(ctx context.Context, revision int64) ([]Event, error) {
	var errs []error
	for _, s := range w.streams {
		errs = append(errs, s.wait(ctx, revision))
	}
	w.stop()
	w.wg.Wait()
	var all []Event
	for i, s := range w.streams {
		seen := s.upTo(revision)
		errs = append(errs, s.mu.err)
		if i == 0 {
			all = seen
			continue
		}
		errs = append(errs, differ(w.streams[0].name, all, s.name, seen))
	}
	return all, errors.Join(append(errs, kvclient.Close(w.conns))...)
}

// Opened returns how often the streams were opened.
func (w *Watches) Opened() (n int) {
	for _, s := range w.streams {
		s.mu.Lock()
		n += s.mu.opened
		s.mu.Unlock()
	}
	return n
}

func (s *stream) wait(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		last := s.mu.last
		s.mu.Unlock()
		if last >= revision {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch %s has seen revision %d, not %d: %w", s.name, last, revision, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *stream) upTo(revision int64) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.mu.seen, revision+1, func(e Event, rev int64) int { return int(e.Revision - rev) })
	return s.mu.seen[:i]
}

// differ returns the first difference of two streams.
func differ(a string, x []Event, b string, y []Event) error {
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Errorf("watch %s has seen %+v, watch %s %+v", a, x[i], b, y[i])
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("watch %s has seen %d events, watch %s %d", a, len(x), b, len(y))
	}
	return nil
}
