package watch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// A client that does not read uses no more memory than its queue allows, and does not delay others:
// another stream has each event as soon as the hub has it.
func TestASlowStreamIsBoundedAndDelaysNoOther(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits limits
		value  string
	}{
		{"by events", limits{queueEvents: 50}, "v"},
		{"by bytes", limits{queueBytes: 10_000}, strings.Repeat("v", 1000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := testRig(t)
			slow, fast := limited(r.hub.NewStream(), c.limits), limited(r.hub.NewStream(), c.limits)
			r.watch(slow, prefix("a"))
			r.watch(fast, prefix("a"))
			for i := range 1000 {
				rev := r.put(fmt.Sprint("a", i%7), c.value)
				r.pass()
				got := drain(fast)
				if len(got) != 1 || len(got[0].Events) != 1 || got[0].Revision != rev {
					t.Fatalf("after revision %d the fast stream has %q", rev, text(got...))
				}
				q := &slow.queue
				if q.mu.events > max(c.limits.queueEvents+1, 10) || c.limits.queueBytes > 0 && q.mu.bytes > c.limits.queueBytes {
					t.Fatalf("the slow stream's queue has %d events of %d bytes", q.mu.events, q.mu.bytes)
				}
			}
			wantAll(t, drain(slow), 2, 1001)
			if !slow.watchers[0].synced {
				t.Error("the slow watcher has caught up, and is not synced")
			}
		})
	}
}

// wantAll fails unless all contains one event of each revision from first to last.
func wantAll(t *testing.T, all []Response, first, last int64) {
	t.Helper()
	next := first
	for _, r := range all {
		for _, e := range r.Events {
			if e.GetKv().GetModRevision() != next {
				t.Fatalf("event of revision %d, want %d", e.GetKv().GetModRevision(), next)
			}
			next++
		}
	}
	if next != last+1 {
		t.Errorf("events up to revision %d, want %d", next-1, last)
	}
}

// On one stream, new events arrive while another watcher reads a long history.
func TestTheHistoryDoesNotHoldUpTheQueue(t *testing.T) {
	r := testRig(t)
	r.puts("old", 5000)
	s := limited(r.hub.NewStream(), limits{batchEvents: 10, scanWrites: 10})
	now := r.watch(s, key("new"))
	past := r.watch(s, from(key("old"), 1))
	rev := r.put("new", "1")
	r.pass()
	for i := range 4 {
		got, ok := s.Next()
		if !ok {
			t.Fatal("Next() has nothing")
		}
		if got.ID == now {
			if got.Revision != rev {
				t.Errorf("event of revision %d, want %d", got.Revision, rev)
			}
			break
		}
		if got.ID != past || i == 3 {
			t.Fatalf("response %d is %q, want the new event", i, text(got))
		}
	}
	wantEvents(t, s, past, 5000-10)
}

// wantEvents drains s. All events must belong to watcher id.
func wantEvents(t *testing.T, s *Stream, id int64, atLeast int) {
	t.Helper()
	n := 0
	for _, r := range drain(s) {
		if r.ID != id {
			t.Errorf("response for watcher %d, want %d", r.ID, id)
		}
		n += len(r.Events)
	}
	if n < atLeast {
		t.Errorf("watcher %d got %d events, want %d", id, n, atLeast)
	}
}

// Without watchers no events are kept, and a later watcher misses none.
func TestAHubWithoutWatchersKeepsNothing(t *testing.T) {
	r := testRig(t)
	r.puts("a", 100)
	if n := len(r.hub.inbox.mu.revisions); n != 1 {
		t.Errorf("inbox has %d revisions, want word of all in one", n)
	}
	s := r.hub.NewStream()
	r.watch(s, key("a"))
	past := r.hub.NewStream()
	r.watch(past, from(key("a"), 50))
	r.put("a", "now")
	r.pass()
	wantAll(t, drain(s), 102, 102)
	wantAll(t, drain(past), 50, 102)
}

// A restore moves the store forward without events.
func TestWatchersCatchUpAfterARestore(t *testing.T) {
	for _, c := range []struct {
		name      string
		compacted int64
		want      string
	}{
		{"the history is there", 2, "0@11: a=1/3 a=2/4 a=3/5 a=4/6 a=5/7 a=6/8 a=7/9 a=8/10 a=9/11"},
		{"it is compacted", 8, "0@11: compacted 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leader, r := testRig(t), testRig(t)
			s := r.hub.NewStream()
			r.watch(s, key("a"))
			r.put("a", "0")
			leader.puts("a", 10)
			r.pass()
			wantText(t, "before", drain(s), "0@2: a=0/2")
			leader.apply(compact(c.compacted))
			if err := r.store.Restore(snapshot(t, leader.store, t.TempDir())); err != nil {
				t.Fatal(err)
			}
			r.pass()
			wantText(t, "after", drain(s), c.want)
		})
	}
}

// Thousands of watchers of one stream that start in the past share a few scans of the history.
func TestThousandsOfWatchersOnOneStream(t *testing.T) {
	const n = 5000
	r := testRig(t)
	for i := range n {
		r.put(fmt.Sprintf("k/%04d", i), "v")
	}
	r.pass()
	counted := &countedHistory{Store: r.store}
	r.hub.history = counted
	s := r.hub.NewStream()
	for i := range n {
		r.watch(s, from(key(fmt.Sprintf("k/%04d", i)), 1))
	}
	wantOneEach(t, drain(s), n)
	if counted.scans > 20 {
		t.Errorf("%d scans of the history for %d watchers", counted.scans, n)
	}
	for i := range n {
		r.put(fmt.Sprintf("k/%04d", i), "w")
	}
	r.pass()
	wantOneEach(t, drain(s), n)

	// One write for all of them fits the queue.
	all := limited(r.hub.NewStream(), limits{queueEvents: 1})
	for range n {
		r.watch(all, prefix("k/"))
	}
	scans := counted.scans
	r.put("k/1", "x")
	r.pass()
	wantOneEach(t, drain(all), n)
	if counted.scans != scans {
		t.Errorf("%d scans of the history for watchers that are synced", counted.scans-scans)
	}
}

type countedHistory struct {
	*store.Store
	scans int
}

func (c *countedHistory) History(first int64, limit int, visit func(store.Write) bool) (int64, error) {
	c.scans++
	return c.Store.History(first, limit, visit)
}

func wantOneEach(t *testing.T, all []Response, n int) {
	t.Helper()
	got := map[int64]*mvccpb.Event{}
	for _, r := range all {
		for _, e := range r.Events {
			if got[r.ID] != nil {
				t.Errorf("watcher %d got %s and %s", r.ID, eventText(got[r.ID]), eventText(e))
			}
			got[r.ID] = e
		}
	}
	if len(got) != n {
		t.Errorf("%d watchers got something, want %d", len(got), n)
	}
}

// hookedHistory calls hook after it was asked for the revision.
type hookedHistory struct {
	*store.Store
	hook func()
}

func (h *hookedHistory) Revision() int64 {
	rev := h.Store.Revision()
	if hook := h.hook; hook != nil {
		h.hook = nil
		hook()
	}
	return rev
}

// A revision that the hub handles while a watcher is added is not lost.
func TestAWatcherGetsWhatIsPassedOnWhileItIsAdded(t *testing.T) {
	r := testRig(t)
	r.hub.history = &hookedHistory{Store: r.store, hook: func() {
		r.put("a", "meanwhile")
		r.pass()
	}}
	s := r.hub.NewStream()
	if _, rev, err := s.Watch(key("a")); rev != 1 || err != nil {
		t.Fatalf("Watch() at %d, %v, want 1", rev, err)
	}
	wantText(t, "passed on before it was there", drain(s), "0@2: a=meanwhile/2")
}

// The hub detects revisions that are missing in its inbox.
func TestAGapIsFilledFromTheHistory(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream()
	r.watch(s, key("a"))
	r.puts("a", 4)
	r.hub.inbox.mu.revisions = r.hub.inbox.mu.revisions[3:] // starts at revision 5
	r.pass()
	wantAll(t, drain(s), 2, 5)
}

// All watchers of a member together use limited memory, however many they are and however long
// their keys. A rejected watcher gets the numbers. Memory is free again after a cancellation, a
// rejection, or the end of the stream.
func TestWatchersUseLimitedMemory(t *testing.T) {
	r := testRig(t)
	one := Request{Key: []byte("key"), End: []byte("kez")}
	r.hub.memory.limit = 4 * one.bytes()
	first, second := r.hub.NewStream(), r.hub.NewStream()
	watch := func(s *Stream, want bool) int64 {
		t.Helper()
		id, _, err := s.Watch(one)
		if full, ok := errors.AsType[*FullError](err); ok == want || ok && (full.Limit != r.hub.memory.limit || full.Bytes != one.bytes()) {
			t.Fatalf("Watch() = %v, want room for it: %v", err, want)
		}
		return id
	}
	id := watch(first, true)
	for range 3 {
		watch(second, true)
	}
	watch(first, false)
	if n := r.hub.watchers.Load(); n != 4 {
		t.Errorf("%d watchers, want 4", n)
	}
	if !first.Cancel(id) {
		t.Fatal("Cancel() of a watcher that there is = false")
	}
	if _, _, err := first.Watch(Request{Key: []byte(strings.Repeat("k", 1<<10))}); err == nil {
		t.Error("a watcher of a long key finds room for a short one enough")
	}
	if _, _, err := first.Watch(Request{ID: All, Key: one.Key}); !errors.Is(err, ErrReservedID) {
		t.Errorf("Watch() = %v, want %v", err, ErrReservedID)
	}
	watch(first, true)
	watch(first, false)
	second.Close()
	for range 3 {
		watch(first, true)
	}
	watch(first, false)
	first.Close()
	first.Close()
	if got := r.hub.memory.used.Load(); got != 0 {
		t.Errorf("%d bytes are taken when all streams are closed, want 0", got)
	}
	if text := (&FullError{1, 2, 3}).Error(); !strings.Contains(text, "ResourceExhausted") || !strings.Contains(text, "2 of 3 bytes") {
		t.Errorf("the error is %q, want the code, the value and the limit", text)
	}
}
