package watch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// writeHistory writes revisions 2 to 6.
func writeHistory(r *rig) {
	r.put("a", "1")                   // 2
	r.put("b", "1")                   // 3
	r.apply(putAll("2", "a", "c"))    // 4
	r.apply(del("a", "b"))            // 5
	r.apply(putAll("3", "a/x", "zz")) // 6
}

func TestWatcherGetsWhatItAskedFor(t *testing.T) {
	all := Request{Key: []byte{0}, End: []byte{0}}
	with := func(r Request, change func(*Request)) Request {
		change(&r)
		return r
	}
	for _, c := range []struct {
		name string
		req  Request
		want string
	}{
		{"one key", key("a"), " a=1/2 a=2/4 -a/5"},
		{"a prefix", prefix("a"), " a=1/2 a=2/4 -a/5 a/x=3/6"},
		{"all keys", all, " a=1/2 b=1/3 a=2/4 c=2/4 -a/5 a/x=3/6 zz=3/6"},
		{"all from a key on", Request{Key: []byte("b"), End: []byte{0}}, " b=1/3 c=2/4 zz=3/6"},
		{"a range that is no prefix", Request{Key: []byte("a0"), End: []byte("c")}, " b=1/3"},
		{"no puts", with(all, func(r *Request) { r.NoPut = true }), " -a/5"},
		{"no deletions", with(key("a"), func(r *Request) { r.NoDelete = true }), " a=1/2 a=2/4"},
		{"with the version before", with(key("a"), func(r *Request) { r.PrevKV = true }), " a=1/2 a=2/4(1/2) -a/5(2/4)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// From the history, all events come in one response.
			r := testRig(t)
			writeHistory(r)
			r.pass()
			s := r.hub.NewStream()
			r.watch(s, from(c.req, 1))
			wantText(t, "from the past", drain(s), "0@6:"+c.want)

			// A synced watcher that is not slow gets one response per revision.
			r = testRig(t)
			s = r.hub.NewStream()
			r.watch(s, c.req)
			writeHistory(r)
			r.pass()
			got := drain(s)
			if len(got) != 1 || fmt.Sprint(text(Response{Events: got[0].Events})) != fmt.Sprint([]string{"0@0:" + c.want}) {
				t.Errorf("from now on: responses = %q, want events %q", text(got...), c.want)
			}
		})
	}
}

func TestStartRevisionIsWhereAWatcherBegins(t *testing.T) {
	for _, c := range []struct {
		name  string
		start int64
		want  string
	}{
		{"in the past", 3, "0@6: b=1/3 a=2/4 c=2/4 -a/5 a/x=3/6 zz=3/6"},
		{"the newest", 6, "0@6: a/x=3/6 zz=3/6"},
		{"the next", 7, ""},
		{"now", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRig(t)
			writeHistory(r)
			r.pass()
			s := r.hub.NewStream()
			r.watch(s, Request{Key: []byte{0}, End: []byte{0}, Start: c.start})
			if c.want == "" {
				wantText(t, "before", drain(s))
			} else {
				wantText(t, "before", drain(s), c.want)
			}
			r.put("a", "7")
			r.pass()
			wantText(t, "after", drain(s), "0@7: a=7/7")
		})
	}
}

func TestIDsAreOfTheClientsChoiceOrTheStreams(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	ask := func(id int64) func() (int64, error) {
		return func() (int64, error) {
			id, _, err := s.Watch(Request{ID: id, Key: []byte("a")})
			return id, err
		}
	}
	cancel := func(id int64) func() (int64, error) {
		return func() (int64, error) {
			if !s.Cancel(id) {
				return -7, nil
			}
			return id, nil
		}
	}
	for _, c := range []struct {
		name string
		do   func() (int64, error)
		id   int64
		err  error
	}{
		{"the first of the stream's choice", ask(0), 0, nil},
		{"the client takes 1", ask(1), 1, nil},
		{"the stream steps over it", ask(0), 2, nil},
		{"twice", ask(1), 0, ErrDuplicateID},
		{"the ID for all", ask(-1), 0, ErrReservedID},
		{"a negative one", ask(-5), -5, nil},
		{"cancel", cancel(1), 1, nil},
		{"cancel again", cancel(1), -7, nil},
		{"taken again", ask(1), 1, nil},
		{"a range that ends before it begins", func() (int64, error) {
			id, _, err := s.Watch(Request{Key: []byte("b"), End: []byte("a")})
			return id, err
		}, 0, ErrEmptyRange},
		{"a range that ends where it begins", func() (int64, error) {
			id, _, err := s.Watch(Request{Key: []byte("b"), End: []byte("b")})
			return id, err
		}, 0, ErrEmptyRange},
	} {
		if id, err := c.do(); id != c.id || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, id, err, c.id, c.err)
		}
	}
	if n := r.hub.watchers.Load(); n != 4 {
		t.Errorf("hub counts %d watchers, want 4", n)
	}
	s.Close()
	if n := r.hub.watchers.Load(); n != 0 || r.hub.mu.synced.size != 0 {
		t.Errorf("hub counts %d watchers and has %d after the stream was closed", n, r.hub.mu.synced.size)
	}
}

// A cancelled watcher gets no queued events.
func TestACancelledWatcherGetsNothingMore(t *testing.T) {
	r := testRig(t)
	s := limited(r.hub.NewStream(), limits{queueEvents: 2, batchEvents: 1})
	past := r.watch(s, from(key("a"), 1))
	now := r.watch(s, key("a"))
	r.puts("a", 9)
	r.pass()
	if _, ok := s.Next(); !ok {
		t.Fatal("no response")
	}
	for _, id := range []int64{now, past} {
		if !s.Cancel(id) {
			t.Fatalf("Cancel(%d) = false", id)
		}
	}
	r.put("a", "last")
	r.pass()
	wantText(t, "after all were cancelled", drain(s))
	if q := &s.queue; q.mu.events != 0 || q.mu.bytes != 0 || q.mu.extra != 0 || s.behind.size != 0 {
		t.Errorf("queue holds %d events, %d bytes, room for %d watchers; %d are behind", q.mu.events, q.mu.bytes, q.mu.extra, s.behind.size)
	}
}

// As in etcd, a watcher may start at the compacted revision. The previous version of its first
// event is gone.
func TestCompactionEndsTheWatchersThatNeedMore(t *testing.T) {
	for _, c := range []struct {
		name  string
		start int64
		want  string
	}{
		{"below", 3, "0@6: compacted 4"},
		{"at", 4, "0@6: a=2/4 -a/5(2/4)"},
		{"above", 5, "0@6: -a/5(2/4)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRig(t)
			writeHistory(r)
			r.apply(compact(4))
			s := r.hub.NewStream()
			req := from(key("a"), c.start)
			req.PrevKV = true
			r.watch(s, req)
			wantText(t, "start", drain(s), c.want)
		})
	}
}

// passedBy is a history that is compacted while it is read.
type passedBy struct {
	*store.Store
	compact func()
}

func (h *passedBy) History(first int64, limit int, visit func(store.Write) bool) (next int64, err error) {
	return h.Store.History(first, limit, func(w store.Write) bool {
		if h.compact != nil {
			h.compact()
			h.compact = nil
		}
		return visit(w)
	})
}

// Events that were read before such a compaction may have gaps, so none is returned.
func TestACompactionThatPassesByEndsWatchers(t *testing.T) {
	r := testRig(t)
	writeHistory(r)
	r.hub.history = &passedBy{Store: r.store, compact: func() { r.apply(compact(4)) }}
	s := r.hub.NewStream()
	r.watch(s, from(key("a"), 2))
	wantText(t, "a compaction during the scan", drain(s), "0@6: compacted 4")
}

// A late hub holds revisions that are compacted by now. Its synced watchers get them all the same.
func TestCompactionDoesNotEndASyncedWatcher(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	r.watch(s, key("a"))
	r.puts("a", 3)
	r.apply(compact(4))
	r.pass()
	wantText(t, "after a compaction", drain(s), "0@4: a=0/2 a=1/3 a=2/4")
}

// A progress request is answered after all watchers have got everything up to its revision.
func TestProgressWaitsForAllWatchers(t *testing.T) {
	r := testRig(t)
	s := limited(r.hub.NewStream(), limits{batchEvents: 1})
	s.RequestProgress()
	wantText(t, "without watchers", drain(s))

	r.watch(s, key("a"))
	r.put("a", "1")
	s.RequestProgress()
	wantText(t, "before the hub has come to it", drain(s))
	r.pass()
	wantText(t, "once it has", drain(s), "0@2: a=1/2", "-1@2:")

	r.puts("b", 2)
	r.watch(s, from(key("b"), 1))
	s.RequestProgress()
	r.pass()
	if got, ok := s.Next(); !ok || got.ID == All {
		t.Fatalf("Next() = %v, %v; a watcher is behind", got, ok)
	}
	wantText(t, "when the other has caught up", drain(s), "1@4: b=1/4", "-1@4:")

	r.watch(s, from(key("b"), 6))
	s.RequestProgress()
	wantText(t, "one starts later", drain(s))
	r.puts("a", 2)
	r.pass()
	wantText(t, "and later no more", drain(s), "0@5: a=0/5", "0@6: a=1/6")
	s.RequestProgress()
	wantText(t, "it has started", drain(s), "-1@6:")
}

// Pending progress requests share one response.
func TestProgressIsAnsweredOnce(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	r.watch(s, key("a"))
	for range 3 {
		r.put("b", "1")
		s.RequestProgress()
		wantText(t, "the hub is late", drain(s))
	}
	r.pass()
	wantText(t, "all of them", drain(s), "-1@4:")
}

// A progress response that is queued when a watcher is added does not cover that watcher. Its
// client would take it for the watcher's own progress and lose events of the past.
func TestProgressDoesNotCoverLaterWatchers(t *testing.T) {
	for _, turn := range []string{"the history's", "the queue's"} {
		r := testRig(t)
		s := r.hub.NewStream()
		r.watch(s, key("b"))
		r.puts("a", 3)
		r.put("b", "1")
		r.pass()
		s.RequestProgress()
		if got, ok := s.Next(); !ok || got.ID == All {
			t.Fatalf("Next() = %v, %v, want an event", got, ok)
		}
		r.watch(s, from(key("a"), 1))
		s.historyTurn = turn == "the queue's"
		wantText(t, "a watcher was added, and it is the turn of "+turn, drain(s), "1@5: a=0/2 a=1/3 a=2/4", "-1@5:")
	}
}

// A tick notifies synced watchers that asked for progress and got no response since the last tick.
func TestTickNotifiesIdleWatchers(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	notify := func(req Request) Request {
		req.Progress = true
		return req
	}
	r.watch(s, notify(key("a")))
	r.watch(s, key("b"))
	r.watch(s, notify(from(key("c"), 9)))
	r.watch(s, notify(from(key("d"), 2)))
	s.Tick()
	wantText(t, "at once", drain(s), "0@1:")
	r.puts("x", 2)
	r.pass()
	s.Tick()
	wantText(t, "one has come to its start", sorted(drain(s)), "0@3:", "3@3:")
	r.put("a", "1")
	r.pass()
	wantText(t, "an event", drain(s), "0@4: a=1/4")
	s.Tick()
	wantText(t, "after an event", drain(s), "3@4:")
	s.Tick()
	wantText(t, "a tick later", sorted(drain(s)), "0@4:", "3@4:")
}

// Progress after an event comes in a response of its own.
func TestProgressIsNotMergedWithEvents(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	req := key("a")
	req.Progress = true
	r.watch(s, req)
	r.put("a", "1")
	r.pass()
	s.Tick()
	wantText(t, "an event and a tick", drain(s), "0@2: a=1/2", "0@2:")
}

// If a slow client gets several ticks, one progress response per watcher is queued, and the next
// tick after it was read queues another.
func TestProgressIsQueuedOnce(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	req := key("a")
	req.Progress = true
	r.watch(s, req)
	r.watch(s, req)
	for range 3 {
		s.Tick()
	}
	wantText(t, "three ticks", sorted(drain(s)), "0@1:", "1@1:")
	s.Tick()
	wantText(t, "and one more", sorted(drain(s)), "0@1:", "1@1:")
}

func sorted(rs []Response) []Response {
	for i := range rs {
		for j := range i {
			if rs[i].ID < rs[j].ID {
				rs[i], rs[j] = rs[j], rs[i]
			}
		}
	}
	return rs
}
