package etcdapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Watches work through etcd's client library.
func TestWatchThroughTheEtcdClient(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	ctx := t.Context()
	for i := range 5 {
		s.put(t, "k", fmt.Sprint(i))
	}
	all := c.Watch(ctx, "k", clientv3.WithRev(3), clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithFragment())
	now := c.Watch(ctx, "k", clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	if r := <-now; !r.Created || r.Header.GetRevision() != 6 {
		t.Errorf("first response = %+v, want created at 6", r)
	}
	replayed := <-all
	if first := replayed.Events[0]; first.GetKv().GetModRevision() != 3 || string(first.GetPrevKv().GetValue()) != "0" || !first.IsModify() {
		t.Errorf("replay = %v", replayed.Events)
	}
	wantEvents(t, "replay", &replayed, 4, 6)
	if _, err := c.Txn(ctx).Then(clientv3.OpPut("k/1", "x"), clientv3.OpPut("k/2", "x")).Commit(); err != nil {
		t.Fatal(err)
	}
	both := <-all
	wantEvents(t, "a transaction", &both, 2, 7)
	s.delete(t, "k")
	deleted := <-now
	wantEvents(t, "a deletion", &deleted, 1, 8)
	if got := deleted.Events[0].GetType(); got != clientv3.EventTypeDelete {
		t.Errorf("without puts comes %v", got)
	}
	<-all
	if err := c.RequestProgress(ctx); err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]clientv3.WatchChan{"all": all, "now": now} {
		if r := <-w; !r.IsProgressNotify() || r.Header.GetRevision() != 8 {
			t.Errorf("%s: response = %+v, want progress at 8", name, r)
		}
	}
}

func TestWatchFromACompactedRevision(t *testing.T) {
	s := startServer(t, Config{})
	for i := range 5 {
		s.put(t, "k", fmt.Sprint(i))
	}
	s.compact(t, 5)
	r := <-s.client(t).Watch(t.Context(), "k", clientv3.WithRev(2))
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != 5 || !r.Canceled {
		t.Errorf("watch from a compacted revision = %+v, %v", r, r.Err())
	}
}

func wantEvents(t *testing.T, what string, r *clientv3.WatchResponse, events int, revision int64) {
	t.Helper()
	if len(r.Events) != events || r.Header.GetRevision() != revision {
		t.Fatalf("%s comes as %v at %d, want %d events at %d", what, r.Events, r.Header.GetRevision(), events, revision)
	}
}

// Many watchers share one stream.
func TestThousandsOfWatchersOfOneClient(t *testing.T) {
	const n = 2000
	s := startServer(t, Config{})
	p := s.watchPipe(t)
	go func() {
		for i := range n {
			p.create(&pb.WatchCreateRequest{Key: fmt.Appendf(nil, "k/%d", i)})
		}
	}()
	for range n {
		if r, err := p.Recv(); err != nil || !r.GetCreated() {
			t.Fatalf("Recv() = %v, %v", r, err)
		}
	}
	var got, want []int64
	for i := range n {
		s.put(t, fmt.Sprintf("k/%d", i), "v")
		want = append(want, int64(i))
	}
	for range n {
		r, err := p.Recv()
		if err != nil || len(r.GetEvents()) != 1 {
			t.Fatalf("Recv() = %v, %v", r, err)
		}
		got = append(got, r.GetWatchId())
	}
	if !slices.Equal(got, want) {
		t.Errorf("watchers %v got something, want each once", got)
	}
}

// A client that does not read delays neither writes nor other clients.
func TestSlowWatchClientDelaysNoOther(t *testing.T) {
	const n = 300
	s := startServer(t, Config{})
	slow := s.watchPipe(t)
	slow.create(&pb.WatchCreateRequest{Key: []byte("k")})
	slow.want("0@1 created")
	fast := s.client(t).Watch(t.Context(), "k")
	value := strings.Repeat("v", 100<<10) // 30 MB in all, far more than the transport takes
	for range n {
		rev := s.put(t, "k", value).GetHeader().GetRevision()
		if r := <-fast; r.Events[0].GetKv().GetModRevision() != rev {
			t.Fatalf("fast client got %v, want revision %d", r.Events, rev)
		}
	}
	for next := int64(2); next < n+2; {
		r, err := slow.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.GetEvents() {
			if e.GetKv().GetModRevision() != next {
				t.Fatalf("slow client got revision %d, want %d", e.GetKv().GetModRevision(), next)
			}
			next++
		}
	}
}

// A watch that requires a leader ends without one, even if its client sends nothing that would
// wake the receiver.
func TestWatchThatRequiresALeaderIsCut(t *testing.T) {
	s := startServer(t, Config{ElectionTimeout: time.Millisecond})
	c := s.client(t)
	w := c.Watch(clientv3.WithRequireLeader(t.Context()), "k", clientv3.WithCreatedNotify())
	free := c.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	<-w
	<-free
	s.setLeader(0)
	r := <-w
	if !errors.Is(r.Err(), rpctypes.ErrNoLeader) {
		t.Errorf("watch ended with %+v, %v, want %v", r, r.Err(), rpctypes.ErrNoLeader)
	}
	s.put(t, "k", "1")
	if r := <-free; len(r.Events) != 1 {
		t.Errorf("a watch that requires no leader got %+v", r)
	}
}

// When the server ends streams, the status must be Unavailable, so that clients continue
// elsewhere.
func TestAnEndedWatchSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause error
		want  codes.Code
	}{
		{"the client left", context.Canceled, codes.Canceled},
		{"the server stops", rpctypes.ErrGRPCStopped, codes.Unavailable},
		{"the time is up", context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		if got := status.Code(watchError(c.cause)); got != c.want {
			t.Errorf("%s: watchError(%v) = %v, want %v", c.name, c.cause, got, c.want)
		}
	}
}

// Through the gateway, each reply of a watch is a line of JSON.
func TestGatewayStreamsAWatch(t *testing.T) {
	s := startServer(t, Config{})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/v3/watch", strings.NewReader(`{"create_request":{"key":"Zm9v"}}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for i, want := range []string{
		`{"result":{"header":{"cluster_id":"193","member_id":"161","revision":"1","raft_term":"7"},"created":true}}`,
		`{"result":{"header":{"cluster_id":"193","member_id":"161","revision":"2","raft_term":"7"},"events":[{"kv":{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}}]}}`,
	} {
		if !lines.Scan() || compact(lines.Text()) != want {
			t.Fatalf("line %d = %s, %v, want %s", i, lines.Text(), lines.Err(), want)
		}
		if i == 0 {
			s.put(t, "foo", "bar")
		}
	}
}

// As in etcd, the previous version of an event is what a read one revision earlier would find:
// none if that revision is compacted, even if it is still stored. A deletion with PrevKv always
// has one.
func TestPrevKVOfWhatIsCompacted(t *testing.T) {
	for compacted, want := range map[int64]string{
		0: " PUT@2() PUT@3(1) DELETE@4(2) PUT@5() DELETE@6(3)",
		3: " PUT@3() DELETE@4(2) PUT@5() DELETE@6(3)",
		4: " DELETE@4() PUT@5() DELETE@6(3)",
		5: " PUT@5() DELETE@6(3)",
		6: " DELETE@6()",
	} {
		t.Run(fmt.Sprint(compacted), func(t *testing.T) {
			s := startServer(t, Config{})
			c := s.client(t)
			s.put(t, "a", "1")
			s.put(t, "a", "2")
			s.delete(t, "a")
			s.put(t, "a", "3")
			s.delete(t, "a")
			if compacted > 0 {
				s.compact(t, compacted)
			}
			r := <-c.Watch(t.Context(), "a", clientv3.WithRev(max(compacted, 1)), clientv3.WithPrevKV())
			var got strings.Builder
			for _, e := range r.Events {
				fmt.Fprintf(&got, " %v@%d(%s)", e.GetType(), e.GetKv().GetModRevision(), e.GetPrevKv().GetValue())
			}
			if got.String() != want {
				t.Errorf("events from %d on =%s, want%s", compacted, got.String(), want)
			}
		})
	}
	s := startServer(t, Config{})
	s.put(t, "b", "0")
	s.put(t, "b", "1")
	s.compact(t, 3)
	if r, err := s.client(t).Delete(t.Context(), "b", clientv3.WithPrevKV()); err != nil || len(r.PrevKvs) != 1 || string(r.PrevKvs[0].GetValue()) != "1" {
		t.Errorf("Delete(b) = %v, %v, want the version that a compaction has kept", r, err)
	}
}
