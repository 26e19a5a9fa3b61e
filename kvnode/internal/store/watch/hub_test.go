package watch

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// startRig returns a rig with a running hub.
func startRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.hub.Start(r.store)
	return r
}

func (r *rig) stop() {
	r.hub.Close()
	_ = r.store.Close()
}

// A watcher that is added after a long time without any gets the history, even if nothing is
// written afterwards.
func TestThePastIsTakenInWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		defer r.stop()
		r.puts("a", 100)
		s := limited(r.hub.NewStream(), limits{scanWrites: 3, batchEvents: 3})
		defer s.Close()
		r.watch(s, from(key("a"), 1))
		var all []Response
		for range 200 {
			all = append(all, drain(s)...)
			synctest.Wait()
		}
		wantAll(t, all, 2, 101)
	})
}

// reader drains a stream with random pauses, and records what it gets.
type reader struct {
	*Stream
	got  map[int64][]int64 // revisions by watcher
	upTo map[int64]int64
}

func (c *reader) run(t *testing.T, rnd *rand.Rand, stop <-chan struct{}) {
	for {
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			for _, e := range r.Events {
				rev := e.GetKv().GetModRevision()
				if rev <= c.upTo[r.ID] {
					t.Errorf("watcher %d got revision %d although it had all up to %d", r.ID, rev, c.upTo[r.ID])
				}
				c.got[r.ID] = append(c.got[r.ID], rev)
			}
			c.upTo[r.ID] = r.Revision
			if rnd.IntN(20) == 0 {
				time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
			}
		}
		select {
		case <-c.Ready():
		case <-stop:
			return
		}
	}
}

// With all goroutines running, and clients that come, pause and go, each watcher gets every
// revision once, in order.
func TestReadersThatPauseMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startRig(t)
		defer r.stop()
		r.hub.inbox.maxEvents = 20
		var wg sync.WaitGroup
		stop := make(chan struct{})
		var readers []*reader
		var mu sync.Mutex
		for i := range 8 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 1))
				for range 3 {
					time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
					c := &reader{limited(r.hub.NewStream(), limits{queueEvents: 1 + i, scanWrites: 1 + 3*i, batchEvents: 1 + i}), map[int64][]int64{}, map[int64]int64{}}
					for _, start := range []int64{1, 50, 150} {
						r.watch(c.Stream, from(prefix("k"), start))
					}
					mu.Lock()
					readers = append(readers, c)
					mu.Unlock()
					own := rand.New(rand.NewPCG(rnd.Uint64(), 1))
					wg.Go(func() {
						defer c.Close()
						c.run(t, own, stop)
					})
				}
			})
		}
		for i := range 400 {
			r.put(fmt.Sprint("k", i%5), "v")
			if i%3 == 0 {
				time.Sleep(time.Duration(i%5) * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		close(stop)
		wg.Wait()
		for _, c := range readers {
			for id, start := range []int64{2, 50, 150} {
				got := c.got[int64(id)]
				if len(got) != int(401-start+1) || got[0] != start || got[len(got)-1] != 401 {
					t.Errorf("watcher from %d got %d revisions from %d to %d, want all up to 401", start, len(got), got[0], got[len(got)-1])
				}
			}
		}
	})
}

// A watcher that is added while a revision is published gets it from the hub or from the history.
func TestNothingIsLostAtTheMomentOfAWatch(t *testing.T) {
	r := newRig(t)
	r.hub.Start(r.store)
	defer r.stop()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.put("a", "v")
			}
		}
	})
	for range 300 {
		s := r.hub.NewStream()
		_, rev, err := s.Watch(key("a"))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := s.Next()
		for !ok {
			<-s.Ready()
			got, ok = s.Next()
		}
		if first := got.Events[0].GetKv().GetModRevision(); first != rev+1 {
			t.Errorf("watch at revision %d begins with %d", rev, first)
		}
		s.Close()
	}
	close(stop)
	wg.Wait()
}

// Apply does not wait for the hub or for streams.
func TestApplyDoesNotWaitForTheHub(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	r.watch(s, key("a"))
	r.hub.mu.Lock() // blocks the hub and all streams
	s.queue.mu.Lock()
	r.puts("a", 1000)
	s.queue.mu.Unlock()
	r.hub.mu.Unlock()
	r.pass()
	wantAll(t, drain(s), 2, 1001)
}

func TestStatsOfStreams(t *testing.T) {
	r := testRig(t)
	want := func(when string, want Stats) {
		t.Helper()
		if got := r.hub.Stats(); got != want {
			t.Errorf("Stats() %s = %+v, want %+v", when, got, want)
		}
	}
	s, idle := r.hub.NewStream(), r.hub.NewStream()
	r.put("a", "0")
	if _, _, err := s.Watch(key("a")); err != nil {
		t.Fatal(err)
	}
	late := key("a")
	late.Start = 2
	if _, _, err := s.Watch(late); err != nil {
		t.Fatal(err)
	}
	want("with one that begins in the past", Stats{Streams: 2, Watchers: 2, Behind: 1})
	r.put("a", "1")
	r.pass()
	want("before a stream reads", Stats{Streams: 2, Watchers: 2, Behind: 1, Pending: 1})
	for more := true; more; {
		_, more = s.Next()
	}
	want("when all is read", Stats{Streams: 2, Watchers: 2, Sent: 3})
	idle.Close()
	s.Close()
	s.Close()
	want("at the end", Stats{Sent: 3})
}

// The inbox of a hub that does not keep up is bounded, in events and in bytes. The rest comes from the history.
func TestTheInboxIsBounded(t *testing.T) {
	for _, test := range []struct {
		name  string
		bound func(b *inbox)
		want  int // revisions in the inbox, one of which stands for the rest
	}{
		{"in events", func(b *inbox) { b.maxEvents = 10 }, 11},
		{"in bytes", func(b *inbox) { b.maxBytes = 10*eventOverhead - 1 }, 10},
	} {
		r := testRig(t)
		test.bound(&r.hub.inbox)
		s := r.hub.NewStream()
		r.watch(s, prefix("a"))
		r.puts("a", 100)
		if n := len(r.hub.inbox.mu.revisions); n != test.want {
			t.Errorf("%s: the inbox has %d revisions, want %d", test.name, n, test.want)
		}
		r.pass()
		wantAll(t, drain(s), 2, 101)
		r.puts("a", 3)
		r.pass()
		wantAll(t, drain(s), 102, 104)
	}
}
