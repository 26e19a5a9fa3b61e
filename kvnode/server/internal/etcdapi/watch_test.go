package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// watchPipe is a stream of the Watch service without a client library.
type watchPipe struct {
	pb.Watch_WatchClient
	tb testing.TB
}

func (s *server) watchPipe(tb testing.TB) *watchPipe {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return &watchPipe{stream, tb}
}

func (p *watchPipe) request(r *pb.WatchRequest) {
	p.tb.Helper()
	if err := p.Send(r); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *watchPipe) create(r *pb.WatchCreateRequest) {
	p.tb.Helper()
	p.request(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (p *watchPipe) cancel(id int64) {
	p.tb.Helper()
	p.request(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

func (p *watchPipe) progress() {
	p.tb.Helper()
	p.request(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// want fails unless the next replies are what the lines say.
func (p *watchPipe) want(lines ...string) {
	p.tb.Helper()
	for _, want := range lines {
		r, err := p.Recv()
		if err != nil {
			p.tb.Fatalf("Recv() = %v, want %q", err, want)
		}
		wantHeader(p.tb, want, r.GetHeader(), r.GetHeader().GetRevision())
		if got := replyText(r); got != want {
			p.tb.Errorf("reply = %q, want %q", got, want)
		}
	}
}

// replyText writes a reply as id@revision and what it says.
func replyText(r *pb.WatchResponse) string {
	var line strings.Builder
	fmt.Fprintf(&line, "%d@%d", r.GetWatchId(), r.GetHeader().GetRevision())
	for _, flag := range []struct {
		name string
		on   bool
	}{{"created", r.GetCreated()}, {"canceled", r.GetCanceled()}, {"fragment", r.GetFragment()}} {
		if flag.on {
			line.WriteString(" " + flag.name)
		}
	}
	if r.GetCompactRevision() != 0 {
		fmt.Fprintf(&line, " compacted=%d", r.GetCompactRevision())
	}
	if r.GetCancelReason() != "" {
		fmt.Fprintf(&line, " (%s)", r.GetCancelReason())
	}
	for _, e := range r.GetEvents() {
		kind := ""
		if e.GetType() == clientv3.EventTypeDelete {
			kind = "-"
		}
		fmt.Fprintf(&line, " %s%s=%s/%d", kind, e.GetKv().GetKey(), e.GetKv().GetValue(), e.GetKv().GetModRevision())
		if e.GetPrevKv() != nil {
			fmt.Fprintf(&line, "(%s)", e.GetPrevKv().GetValue())
		}
	}
	return line.String()
}

func (s *server) delete(tb testing.TB, key string) {
	tb.Helper()
	if _, err := s.kv.DeleteRange(tb.Context(), &pb.DeleteRangeRequest{Key: []byte(key)}); err != nil {
		tb.Fatal(err)
	}
}

func (s *server) compact(tb testing.TB, rev int64) {
	tb.Helper()
	if _, err := s.kv.Compact(tb.Context(), &pb.CompactionRequest{Revision: rev}); err != nil {
		tb.Fatal(err)
	}
}

// The replies on the wire are those of etcd.
func TestWatchRepliesAreThoseOfEtcd(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "a", "1")
	s.put(t, "a", "2")
	s.delete(t, "a") // 4
	p := s.watchPipe(t)

	p.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2, PrevKv: true})
	p.want("0@4 created", "0@4 a=1/2 a=2/3(1) -a=/4(2)")
	p.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}})
	p.want("7@4 created")
	p.create(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: 7})
	p.want("-1@4 created canceled (mvcc: duplicate watch ID provided on the WatchStream)")
	p.create(&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	p.want("-1@4 created canceled (mvcc: watcher range is empty)")
	p.create(&pb.WatchCreateRequest{Key: []byte("b"), StartRevision: -1})
	p.want("-1@4 created canceled (etcdserver: mvcc: required revision has been compacted)")
	p.create(&pb.WatchCreateRequest{Key: []byte("b"), WatchId: -1})
	p.want("-1@4 created canceled (kvnode: watch ID -1 means all watchers of a stream)")
	p.request(&pb.WatchRequest{}) // nothing that is known
	p.cancel(99)                  // not there: no reply

	p.cancel(0)
	p.want("0@4 canceled")
	s.delete(t, "a") // changes nothing
	s.put(t, "a", "3")
	p.want("7@5 a=3/5")
	s.compact(t, 5)
	p.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 4})
	p.want("1@5 created", "1@5 canceled compacted=5 (etcdserver: mvcc: required revision has been compacted)")
	p.create(&pb.WatchCreateRequest{StartRevision: 5, RangeEnd: []byte{0}, PrevKv: true}) // all keys
	p.want("2@5 created", "2@5 a=3/5")
	p.cancel(7)
	p.want("7@5 canceled")
	p.progress()
	p.want("-1@5")
}

// As in etcd, a client that has closed its side keeps receiving events until it has no watcher
// left.
func TestWatchGoesOnAfterTheLastRequest(t *testing.T) {
	s := startServer(t, Config{})
	p := s.watchPipe(t)
	p.create(&pb.WatchCreateRequest{Key: []byte("a")})
	if err := p.CloseSend(); err != nil {
		t.Fatal(err)
	}
	p.want("0@1 created")
	s.put(t, "a", "1")
	p.want("0@2 a=1/2")
}

// After the client has closed its side, the stream ends when no watcher is left: jetcd cancels
// its watcher, closes its side and does nothing else.
func TestWatchEndsWithItsLastWatcher(t *testing.T) {
	s := startServer(t, Config{})
	p := s.watchPipe(t)
	p.create(&pb.WatchCreateRequest{Key: []byte("a")})
	p.create(&pb.WatchCreateRequest{Key: []byte("b")})
	p.cancel(0)
	p.cancel(1)
	if err := p.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0@1 created", "1@1 created", "0@1 canceled", "1@1 canceled"} {
		p.want(want)
	}
	if r, err := p.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("Recv() = %v, %v after the last watcher, want the end of the stream", r, err)
	}
}

// A response that is too large is split into consecutive parts if the client supports it.
// Otherwise it is sent whole.
func TestWatchSplitsWhatIsTooLarge(t *testing.T) {
	s := startServer(t, Config{MaxRequestBytes: 1}) // and 512 KiB
	for i := range 8 {
		s.put(t, "k", fmt.Sprint(i)+strings.Repeat("x", 99_999))
	}
	for _, c := range []struct {
		fragment bool
		want     []int // events by reply
	}{{false, []int{8}}, {true, []int{5, 3}}} {
		p := s.watchPipe(t)
		p.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 1, Fragment: c.fragment})
		p.want("0@9 created")
		next := int64(2)
		for i, n := range c.want {
			r, err := p.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(r.GetEvents()) != n || r.GetFragment() != (i < len(c.want)-1) || r.GetHeader().GetRevision() != 9 {
				t.Errorf("reply %d has %d events, fragment %v, want %d", i, len(r.GetEvents()), r.GetFragment(), n)
			}
			if c.fragment && proto.Size(r) >= s.api.maxMessageBytes() {
				t.Errorf("reply %d has %d bytes, want less than %d", i, proto.Size(r), s.api.maxMessageBytes())
			}
			for _, e := range r.GetEvents() {
				if e.GetKv().GetModRevision() != next {
					t.Errorf("event of revision %d, want %d", e.GetKv().GetModRevision(), next)
				}
				next++
			}
		}
	}
}

// An event is never split, and the parts together are the whole response.
func TestFragmentsHoldAtLeastOneEvent(t *testing.T) {
	event := func(size int) *mvccpb.Event {
		return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, size)}}
	}
	for _, c := range []struct {
		name   string
		events []*mvccpb.Event
		limit  int
		want   []int
	}{
		{"no event", nil, 1, []int{0}},
		{"one that is too large", []*mvccpb.Event{event(100)}, 1, []int{1}},
		{"all too large", []*mvccpb.Event{event(100), event(100), event(100)}, 1, []int{1, 1, 1}},
		{"one of them too large", []*mvccpb.Event{event(1), event(500), event(1), event(1)}, 200, []int{1, 1, 2}},
		{"all fit", []*mvccpb.Event{event(1), event(1)}, 200, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sizes []int
			var all []*mvccpb.Event
			var last bool
			err := sendFragments(&pb.WatchResponse{WatchId: 3, Events: c.events}, c.limit, func(r *pb.WatchResponse) error {
				if last || r.GetWatchId() != 3 {
					t.Errorf("fragment %v after the last one, or of another watcher", r)
				}
				sizes, all, last = append(sizes, len(r.GetEvents())), append(all, r.GetEvents()...), !r.GetFragment()
				return nil
			})
			if err != nil || !last || !slices.Equal(sizes, c.want) || !slices.Equal(all, c.events) {
				t.Errorf("fragments of %v events, want %v; the last says so: %v; %v", sizes, c.want, last, err)
			}
		})
	}
}

// The limit is exclusive, to the byte.
func TestFragmentsAreBelowTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 300}, WatchId: 200}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 300), 2, 20).Draw(t, "sizes") {
			m.Events = append(m.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: make([]byte, n)}})
		}
		limit := rapid.IntRange(1, 1000).Draw(t, "limit")
		var parts []*pb.WatchResponse
		_ = sendFragments(m, limit, func(r *pb.WatchResponse) error {
			parts = append(parts, r)
			return nil
		})
		for i, p := range parts {
			if len(p.GetEvents()) > 1 && proto.Size(p) >= limit {
				t.Fatalf("fragment %d of %d events has %d bytes, limit %d", i, len(p.GetEvents()), proto.Size(p), limit)
			}
			if i+1 < len(parts) {
				p.Events = append(slices.Clone(p.GetEvents()), parts[i+1].GetEvents()[0])
				if proto.Size(p) < limit {
					t.Fatalf("fragment %d has room for one event more", i)
				}
			}
		}
	})
}

func TestProgressIsNotifiedWhileNothingHappens(t *testing.T) {
	s := startServer(t, Config{WatchProgressInterval: MinWatchProgress})
	c := s.client(t)
	s.put(t, "a", "1")
	w := c.Watch(t.Context(), "b", clientv3.WithProgressNotify())
	r := <-w
	if !r.IsProgressNotify() || r.Header.GetRevision() != 2 {
		t.Errorf("response = %+v, want progress at 2", r)
	}
}
