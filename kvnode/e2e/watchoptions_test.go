package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/internal/testcluster"
)

// parts notes the messages of watches that a client receives, before it puts
// fragments together.
type parts struct {
	mu   sync.Mutex
	seen []part
}

// part is one message: the bytes of its keys and values, and whether more follows.
type part struct {
	size     int
	fragment bool
}

// option lets a client note what it receives.
func (p *parts) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return &partStream{s, p}, err
	})
}

type partStream struct {
	grpc.ClientStream
	parts *parts
}

// RecvMsg notes a message with events.
func (s *partStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*pb.WatchResponse); ok && err == nil && len(r.GetEvents()) > 0 {
		p := part{fragment: r.GetFragment()}
		for _, e := range r.GetEvents() {
			p.size += len(e.GetKv().GetKey()) + len(e.GetKv().GetValue()) + len(e.GetPrevKv().GetKey()) + len(e.GetPrevKv().GetValue())
		}
		s.parts.mu.Lock()
		defer s.parts.mu.Unlock()
		s.parts.seen = append(s.parts.seen, p)
	}
	return err
}

// take returns what was received since.
func (p *parts) take() []part {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

// receives waits for the next response of a watch.
func receives(ctx context.Context, t *testing.T, ch clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case resp, ok := <-ch:
		if !ok || resp.Err() != nil {
			t.Fatalf("the watch ends: %v", resp.Err())
		}
		return resp
	case <-ctx.Done():
		t.Fatal("the watch tells nothing")
		return clientv3.WatchResponse{}
	}
}

// TestWatchOptions watches as etcdctl cannot.
func TestWatchOptions(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := startCluster(t, p, "--watch-progress-notify-interval=200ms")
		t.Run("fragments", func(t *testing.T) { watchesInFragments(t, c.Members()[1]) })
		t.Run("filters", func(t *testing.T) { watchesFiltered(t, c.Members()[0]) })
		t.Run("progress", func(t *testing.T) { watchesProgress(t, c.Members()[2]) })
	})
}

// maxMessage is beyond what a message may hold: 1.5 MiB, with 512 KiB to spare.
const maxMessage = 2 << 20

// A response that is too large for a message comes in several if the watcher has
// asked for that: of the past, and of a transaction that has just happened, which
// its client tells as one.
func watchesInFragments(t *testing.T, m *testcluster.Member) {
	ctx := deadline(t)
	var seen parts
	c, err := m.Client(seen.option())
	must(t, err)
	defer c.Close()
	const writes, keys, size = 50, 14, 100 << 10
	pastInPieces(ctx, t, c, writes)
	for _, p := range seen.take() {
		if p.size >= maxMessage {
			t.Errorf("a message of the past has %d bytes, want less than %d", p.size, maxMessage)
		}
	}

	// Alone it is below the limit, together with what was there before beyond it.
	fill(ctx, t, c, "many/", "a", keys, size)
	var puts []clientv3.Op
	for i := range keys {
		puts = append(puts, opPut(fmt.Sprintf("many/%04d", i), strings.Repeat("b", size)))
	}
	watch := func(opts ...clientv3.OpOption) clientv3.WatchChan {
		return c.Watch(ctx, "many/", append(opts, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())...)
	}
	live := watch(clientv3.WithFragment())
	receives(ctx, t, live)
	txn, err := c.Txn(ctx).Then(puts...).Commit()
	must(t, err)
	inFragments(t, "a transaction", &seen, receives(ctx, t, live), keys)
	past := watch(clientv3.WithFragment(), clientv3.WithRev(txn.Header.GetRevision()))
	receives(ctx, t, past)
	inFragments(t, "a past transaction", &seen, receives(ctx, t, past), keys)

	whole := watch(clientv3.WithRev(txn.Header.GetRevision()))
	receives(ctx, t, whole)
	resp := receives(ctx, t, whole)
	if got := seen.take(); len(got) != 1 || got[0].size < maxMessage || len(resp.Events) != keys {
		t.Errorf("without fragments a transaction has %d events in %v, want %d in one beyond %d bytes", len(resp.Events), got, keys, maxMessage)
	}
}

// pastInPieces writes large values, and watches from the first of them. etcd sends all of these
// events at once, kvnode in pieces that need no fragments.
func pastInPieces(ctx context.Context, t *testing.T, c *clientv3.Client, writes int64) {
	t.Helper()
	rev := int64(0)
	for range writes {
		resp, err := c.Put(ctx, "big", strings.Repeat("x", 64<<10))
		must(t, err)
		rev = resp.Header.GetRevision()
	}
	past := c.Watch(ctx, "big", clientv3.WithRev(rev-writes+1), clientv3.WithFragment())
	for n := int64(0); n < writes; {
		for _, e := range receives(ctx, t, past).Events {
			if n++; e.GetKv().GetModRevision() != rev-writes+n {
				t.Fatalf("event %d is of revision %d, want %d", n, e.GetKv().GetModRevision(), rev-writes+n)
			}
		}
	}
}

// inFragments checks that the n events of a transaction came in several messages,
// each small enough.
func inFragments(t *testing.T, what string, seen *parts, resp clientv3.WatchResponse, n int) {
	t.Helper()
	got := seen.take()
	ok := len(got) > 1 && len(resp.Events) == n
	for i, p := range got {
		ok = ok && p.size < maxMessage && p.fragment == (i < len(got)-1)
	}
	if !ok {
		t.Fatalf("%s is told in %d events by messages of %v, want %d by several below %d bytes, all but the last to be continued", what, len(resp.Events), got, n, maxMessage)
	}
	for _, e := range resp.Events {
		if e.GetKv().GetModRevision() != resp.Header.GetRevision() || e.GetPrevKv() == nil {
			t.Errorf("%s has %s at revision %d, was %v; want revision %d, and what it was before", what, e.GetKv().GetKey(), e.GetKv().GetModRevision(), e.GetPrevKv(), resp.Header.GetRevision())
		}
	}
}

// A watcher that filters puts hears of deletions alone, and the other way round:
// of the past as of what happens.
func watchesFiltered(t *testing.T, m *testcluster.Member) {
	ctx := deadline(t)
	c := clients(t, []*testcluster.Member{m})[0]
	var rev int64
	change := func() {
		resp, err := c.Txn(ctx).Then(opPut("f/a", "1"), opPut("f/b", "1")).Commit()
		must(t, err)
		_, err = c.Txn(ctx).Then(opPut("f/a", "2"), opDelete("f/b")).Commit()
		must(t, err)
		_, err = c.Delete(ctx, "f/a")
		must(t, err)
		if rev == 0 {
			rev = resp.Header.GetRevision()
		}
	}
	change()
	for _, w := range []struct {
		name string
		opts []clientv3.OpOption
		want string // with revisions counted from the first
	}{
		{"everything", nil, "PUT a0 PUT b0 PUT a1 DELETE b1 DELETE a2 PUT a3 PUT b3 PUT a4 DELETE b4 DELETE a5 PUT end6 DELETE end7"},
		{"deletions", []clientv3.OpOption{clientv3.WithFilterPut()}, "DELETE b1 DELETE a2 DELETE b4 DELETE a5 DELETE end7"},
		{"puts", []clientv3.OpOption{clientv3.WithFilterDelete()}, "PUT a0 PUT b0 PUT a1 PUT a3 PUT b3 PUT a4 PUT end6"},
	} {
		rev = 0
		change()
		ch := c.Watch(ctx, "f/", append(w.opts, clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())...)
		if resp := receives(ctx, t, ch); !resp.Created {
			t.Errorf("a watch begins with %v, want that it was created", resp)
		}
		change()
		_, err := c.Put(ctx, "f/end", "")
		must(t, err)
		_, err = c.Delete(ctx, "f/end")
		must(t, err)
		var got []string
		for len(got) < strings.Count(w.want, " ")/2+1 {
			for _, e := range receives(ctx, t, ch).Events {
				got = append(got, fmt.Sprintf("%v %s%d", e.GetType(), e.GetKv().GetKey()[len("f/"):], e.GetKv().GetModRevision()-rev))
				if (e.GetPrevKv() == nil) != e.IsCreate() {
					t.Errorf("%s has the previous %v", got[len(got)-1], e.GetPrevKv())
				}
			}
		}
		if got := strings.Join(got, " "); got != w.want {
			t.Errorf("a watch of %s tells %s, want %s", w.name, got, w.want)
		}
	}
	both := c.Watch(ctx, "f/", clientv3.WithPrefix(), clientv3.WithRev(rev), clientv3.WithFilterPut(), clientv3.WithFilterDelete())
	select {
	case resp := <-both:
		t.Errorf("a watch without puts and deletions tells %v", resp)
	case <-time.After(100 * time.Millisecond):
	}
}

// A watch with progress notifications receives them although none of its keys change. Other
// watches receive none.
func watchesProgress(t *testing.T, m *testcluster.Member) {
	ctx := deadline(t)
	c := clients(t, []*testcluster.Member{m})[0]
	quiet := c.Watch(ctx, "p/quiet", clientv3.WithCreatedNotify())
	receives(ctx, t, quiet)
	told := c.Watch(ctx, "p/told", clientv3.WithProgressNotify())
	filtered := c.Watch(ctx, "p/other", clientv3.WithFilterPut(), clientv3.WithProgressNotify())
	for range 2 {
		put, err := c.Put(ctx, "p/other", "1")
		must(t, err)
		for name, ch := range map[string]clientv3.WatchChan{"of another key": told, "of deletions": filtered} {
			for rev := int64(0); rev < put.Header.GetRevision(); {
				resp := receives(ctx, t, ch)
				if !resp.IsProgressNotify() || resp.Header.GetRevision() < rev {
					t.Fatalf("the watch %s tells %v after revision %d, want how far it is", name, resp, rev)
				}
				rev = resp.Header.GetRevision()
			}
		}
	}
	select {
	case resp := <-quiet:
		t.Errorf("a watch that did not ask for progress tells %v", resp)
	default:
	}
}
