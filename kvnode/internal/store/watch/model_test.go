package watch

import (
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
)

// member is a member that lags behind its leader and has watchers. The leader's events are the
// reference for the watchers' events. The leader has no hub.
type member struct {
	*rig
	leader  *store.Store
	dir     string
	log     [][]byte
	history []*mvccpb.Event
	streams []*client

	// Totals over all runs.
	seen *coverage
}

type coverage struct{ events, replayed, demoted, compacted, progress, restored int }

// client is a stream with the responses of its watchers.
type client struct {
	*Stream
	open map[int64]*watched
}

type watched struct {
	Request
	start int64 // the first revision that it is to get
	upTo  int64 // it has got everything up to this revision
	got   []*mvccpb.Event
}

func newMember(t *rapid.T, dir string, seen *coverage) *member {
	m := &member{rig: newRig(t), dir: dir, seen: seen}
	var err error
	m.leader, err = store.Open(store.Config{Backend: storetest.NewDisk().Open(), Events: func(_ int64, writes []store.Write) {
		m.history = append(m.history, eventsOf(writes)...)
	}})
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	m.hub.inbox.maxEvents = rapid.SampledFrom([]int{2, 8, 100}).Draw(t, "inbox")
	return m
}

func (m *member) close() {
	_ = m.store.Close()
	_ = m.leader.Close()
}

// propose applies req on the leader.
func (m *member) propose(req *pb.InternalRaftRequest) {
	m.log = append(m.log, encode(m.t, req))
	m.leader.Apply(uint64(len(m.log)), 1, m.log[len(m.log)-1])
}

// follow applies up to n entries on the member.
func (m *member) follow(n int) {
	for ; n > 0 && m.store.Applied() < uint64(len(m.log)); n-- {
		m.store.Apply(m.store.Applied()+1, 1, m.log[m.store.Applied()])
	}
}

func (m *member) restore() {
	if m.leader.Applied() <= m.store.Applied() {
		return
	}
	m.seen.restored++
	if err := m.store.Restore(snapshot(m.t, m.leader, m.dir)); err != nil {
		m.t.Fatalf("Restore() = %v", err)
	}
}

// due returns the events that w should have up to revision upTo.
func (m *member) due(w *watched, upTo int64) (events []*mvccpb.Event) {
	for _, e := range m.history {
		rev := e.GetKv().GetModRevision()
		if rev < w.start || rev > upTo || !w.covers(e.GetKv().GetKey()) {
			continue
		}
		if e.GetType() == mvccpb.Event_PUT && w.NoPut || e.GetType() == mvccpb.Event_DELETE && w.NoDelete {
			continue
		}
		events = append(events, e)
	}
	return events
}

// covers is independent of the implementation of index.
func (w *watched) covers(key []byte) bool {
	switch {
	case len(w.End) == 0:
		return string(key) == string(w.Key)
	case string(w.End) == "\x00":
		return string(key) >= string(w.Key)
	default:
		return string(key) >= string(w.Key) && string(key) < string(w.End)
	}
}

// take checks one response.
func (m *member) take(c *client, r Response) {
	if r.ID == All {
		m.seen.progress++
		for _, w := range c.open {
			w.upTo = max(w.upTo, r.Revision)
			m.judge(w)
		}
		return
	}
	w := c.open[r.ID]
	if w == nil {
		m.t.Fatalf("response %v is for no watcher", text(r))
	}
	if r.Compacted != 0 {
		m.seen.compacted++
		if need := max(w.start, w.upTo+1); need >= r.Compacted || m.store.CompactRevision() < r.Compacted {
			m.t.Fatalf("watcher %+v needs revision %d and was ended: compacted %d of %d", w.Request, need, r.Compacted, m.store.CompactRevision())
		}
		delete(c.open, r.ID)
		return
	}
	if r.Revision < w.upTo || r.Revision > m.store.Revision() {
		m.t.Fatalf("watcher %+v was told of revision %d after %d, newest %d", w.Request, r.Revision, w.upTo, m.store.Revision())
	}
	m.seen.events += len(r.Events)
	if len(r.Events) == 0 && !w.Progress {
		m.t.Fatalf("watcher %+v was told of progress that it did not ask for", w.Request)
	}
	for _, e := range r.Events {
		if e.GetKv().GetModRevision() <= w.upTo {
			m.t.Fatalf("watcher %+v got %s although it had all up to revision %d", w.Request, eventText(e), w.upTo)
		}
	}
	w.got = append(w.got, r.Events...)
	w.upTo = r.Revision
	m.judge(w)
}

// judge fails unless w has exactly the events that are due up to its newest response.
func (m *member) judge(w *watched) {
	want := m.due(w, w.upTo)
	ok := len(want) == len(w.got)
	for i := 0; ok && i < len(want); i++ {
		ok = m.same(w, w.got[i], want[i])
	}
	if !ok {
		m.t.Fatalf("watcher %+v from %d up to %d, compacted %d, got\n%q, want\n%q", w.Request, w.start, w.upTo, m.store.CompactRevision(), text(Response{Events: w.got}), text(Response{Events: want}))
	}
}

func (m *member) same(w *watched, got, want *mvccpb.Event) bool {
	prev := want.GetPrevKv()
	if !w.PrevKV || got.GetPrevKv() == nil && want.GetKv().GetModRevision() <= m.store.CompactRevision() {
		prev = nil
	}
	return got.GetType() == want.GetType() && proto.Equal(got.GetKv(), want.GetKv()) && proto.Equal(got.GetPrevKv(), prev)
}

var (
	genKey   = rapid.SampledFrom([]string{"a", "a0", "a1", "b", "b/1", "b/2", "c", "\xff", "\xff\xff"})
	genRange = rapid.SampledFrom([][2]string{
		{"a", ""},
		{"b/1", ""},
		{"c", ""},
		{"\xff", ""},
		{"a", "b"},
		{"b/", "b0"},
		{"\x00", "\x00"},
		{"b", "\x00"},
		{"a0", "b/2"},
		{"\xff", "\x00"},
		{"b", "c"},
		{"a0", "c"},
		{"", "\x00"},
	})
)

func (m *member) draw(t *rapid.T) map[string]func(*rapid.T) {
	m.rig.t = t
	pick := func(t *rapid.T) *client {
		if len(m.streams) == 0 {
			t.Skip("no stream")
		}
		return m.streams[rapid.IntRange(0, len(m.streams)-1).Draw(t, "stream")]
	}
	return map[string]func(*rapid.T){
		"put":    func(t *rapid.T) { m.propose(put(genKey.Draw(t, "key"), fmt.Sprint(len(m.log)))) },
		"put 2":  func(t *rapid.T) { m.propose(put(genKey.Draw(t, "key"), fmt.Sprint(len(m.log)))) },
		"delete": func(t *rapid.T) { r := genRange.Draw(t, "range"); m.propose(del(r[0], r[1])) },
		"txn": func(t *rapid.T) {
			keys := rapid.SliceOfNDistinct(genKey, 1, 4, func(k string) string { return k }).Draw(t, "keys")
			m.propose(putAll(fmt.Sprint(len(m.log)), keys...))
		},
		"compact": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "compact") == 0 {
				m.propose(compact(rapid.Int64Range(1, m.leader.Revision()).Draw(t, "revision")))
			}
		},
		"follow": func(t *rapid.T) { m.follow(rapid.IntRange(1, 20).Draw(t, "entries")) },
		"restore": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				m.restore()
			}
		},
		"hub": func(*rapid.T) { m.pass() },
		"connect": func(t *rapid.T) {
			if len(m.streams) == 4 {
				t.Skip("enough streams")
			}
			low := limits{
				queueEvents: rapid.IntRange(1, 4).Draw(t, "queue"), batchEvents: rapid.IntRange(1, 5).Draw(t, "batch"), scanWrites: rapid.IntRange(1, 6).Draw(t, "scan"),
			}
			m.streams = append(m.streams, &client{limited(m.hub.NewStream(), low), map[int64]*watched{}})
		},
		"watch":    func(t *rapid.T) { m.watch(t, pick(t)) },
		"watch 2":  func(t *rapid.T) { m.watch(t, pick(t)) },
		"cancel":   func(t *rapid.T) { m.cancel(t, pick(t)) },
		"progress": func(t *rapid.T) { pick(t).RequestProgress() },
		"tick":     func(t *rapid.T) { pick(t).Tick() },
		"read": func(t *rapid.T) {
			if rapid.Bool().Draw(t, "pass") {
				m.pass()
			}
			c := pick(t)
			for range rapid.IntRange(1, 8).Draw(t, "responses") {
				if r, ok := c.Next(); ok {
					m.take(c, r)
				}
			}
		},
		"leave": func(t *rapid.T) {
			c := pick(t)
			if rapid.IntRange(0, 5).Draw(t, "leave") == 0 {
				c.Close()
				m.streams = slices.DeleteFunc(m.streams, func(o *client) bool { return o == c })
			}
		},
	}
}

func (m *member) watch(t *rapid.T, c *client) {
	keys := genRange.Draw(t, "range")
	r := Request{
		Key: []byte(keys[0]), End: []byte(keys[1]), Start: rapid.Int64Range(0, m.store.Revision()+3).Draw(t, "start"),
		NoPut: rapid.IntRange(0, 5).Draw(t, "noput") == 0, NoDelete: rapid.IntRange(0, 5).Draw(t, "nodelete") == 0,
		PrevKV: rapid.Bool().Draw(t, "prev"), Progress: rapid.Bool().Draw(t, "notify"),
	}
	id, revision, err := c.Watch(r)
	if err != nil || revision != m.store.Revision() {
		t.Fatalf("Watch(%+v) = %d, %d, %v", r, id, revision, err)
	}
	w := &watched{Request: r, start: r.Start}
	if r.Start == 0 {
		w.start, w.upTo = revision+1, revision
	}
	if r.Start != 0 && r.Start <= revision {
		m.seen.replayed++
	}
	c.open[id] = w
}

func (m *member) cancel(t *rapid.T, c *client) {
	for id := range int64(100) {
		if c.open[id] == nil {
			continue
		}
		if !c.Cancel(id) {
			t.Fatalf("Cancel(%d) = false", id)
		}
		delete(c.open, id)
		return
	}
}

// settle applies and delivers everything.
func (m *member) settle() {
	m.follow(len(m.log))
	m.pass()
	for _, c := range m.streams {
		for range 2 {
			for _, r := range drain(c.Stream) {
				m.take(c, r)
			}
		}
		if c.behind.size > 0 || c.hasDemoted() {
			m.t.Fatalf("%d watchers of a stream that was drained are behind", c.behind.size)
		}
		for _, w := range c.open {
			w.upTo = max(w.upTo, m.store.Revision())
			m.judge(w)
		}
	}
}

// Each watcher gets exactly the history of its keys, or a response that a part of it is compacted.
func TestWatchersGetTheHistory(t *testing.T) {
	seen := &coverage{}
	rapid.Check(t, func(t2 *rapid.T) {
		m := newMember(t2, t.TempDir(), seen)
		defer m.close()
		t2.Repeat(m.draw(t2))
		m.rig.t = t2
		for _, c := range m.streams {
			m.seen.demoted += c.behind.size
		}
		m.settle()
	})
	t.Logf("seen: %+v", *seen)
	for what, n := range map[string]int{
		"events": seen.events, "replays": seen.replayed, "watchers behind": seen.demoted, "compacted watchers": seen.compacted,
		"progress": seen.progress, "restores": seen.restored,
	} {
		if n == 0 && !testing.Short() {
			t.Errorf("there were no %s", what)
		}
	}
}
