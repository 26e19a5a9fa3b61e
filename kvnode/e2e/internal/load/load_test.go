package load

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func lockKey(rev, create int64, key string, deleted bool) Event {
	return Event{Revision: rev, Create: create, Key: LockName + "/" + key, Deleted: deleted}
}

func guardedBy(rev int64, token string) Event {
	return Event{Revision: rev, Key: GuardedKey, Value: token}
}

// JudgeLocks finds each kind of violation.
func TestJudgeLocks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history []Event
		broken  string // empty: nothing is
	}{
		{"one holder after the other", []Event{
			lockKey(2, 2, "a", false), lockKey(3, 3, "b", false), guardedBy(4, "2"), lockKey(5, 0, "a", true), guardedBy(6, "3"),
		}, ""},
		{"the second writes while the first holds", []Event{
			lockKey(2, 2, "a", false), lockKey(3, 3, "b", false), guardedBy(4, "3"),
		}, "token 2 holds the lock"},
		{"the first writes after the second", []Event{
			lockKey(2, 2, "a", false), lockKey(3, 0, "a", true), lockKey(4, 4, "b", false), guardedBy(5, "4"), lockKey(6, 0, "b", true), guardedBy(7, "2"),
		}, "after token 4"},
		{"what is written is no token", []Event{guardedBy(2, "x")}, "invalid syntax"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := JudgeLocks(tc.history)
			if (err == nil) != (tc.broken == "") || err != nil && !strings.Contains(err.Error(), tc.broken) {
				t.Errorf("JudgeLocks() = %v, want %q", err, tc.broken)
			}
		})
	}
}

func told(revs ...int64) *clientv3.WatchResponse {
	resp := &clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{}}
	for _, rev := range revs {
		resp.Events = append(resp.Events, &clientv3.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: rev}})
	}
	return resp
}

func progressTo(rev int64) *clientv3.WatchResponse {
	return &clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: rev}}
}

// The check of watches finds each kind of violation.
func TestStreamFindsBrokenPromises(t *testing.T) {
	for _, tc := range []struct {
		name      string
		responses []*clientv3.WatchResponse
		broken    string
	}{
		{"each revision once, with progress between", []*clientv3.WatchResponse{told(2, 2, 3), progressTo(3), told(4), told(5, 6)}, ""},
		{"a revision in pieces", []*clientv3.WatchResponse{told(2), told(2, 3)}, "in pieces"},
		{"a gap between responses", []*clientv3.WatchResponse{told(2), told(4)}, "revision 4 comes after 2"},
		{"a gap within a response", []*clientv3.WatchResponse{told(2, 4)}, "revision 4 comes after 2"},
		{"out of order", []*clientv3.WatchResponse{told(2, 3, 2)}, "revision 2 comes after 3"},
		{"a duplicate", []*clientv3.WatchResponse{told(2, 3), told(3)}, "comes again"},
		{"progress that runs ahead", []*clientv3.WatchResponse{told(2), progressTo(3), told(3)}, "progress to revision 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStream(nil, "w", 1, false)
			for _, resp := range tc.responses {
				s.take(resp)
			}
			err := s.mu.err
			if (err == nil) != (tc.broken == "") || err != nil && !strings.Contains(err.Error(), tc.broken) {
				t.Errorf("take() = %v, want %q", err, tc.broken)
			}
		})
	}
	a, b := []Event{{Revision: 2, Value: "x"}}, []Event{{Revision: 2, Value: "y"}}
	if differ("a", a, "b", b) == nil || differ("a", a, "b", nil) == nil || differ("a", a, "b", a) != nil {
		t.Error("differ() does not tell streams apart")
	}
}

// A pause starts at the answer before it, and counts while it lasts.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Load{}
		l.failed.Add(5)
		p := l.Pauses()
		for _, quiet := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 40 * time.Millisecond} {
			time.Sleep(quiet)
			l.reads.Add(1)
		}
		l.failed.Add(2)
		time.Sleep(time.Millisecond)
		reads, writes, failed := p.End()
		const off = 10 * time.Millisecond // it looks each 5 ms
		if d := reads - 300*time.Millisecond; d.Abs() > off {
			t.Errorf("End() = %v without a read, want 300ms, give or take %v", reads, off)
		}
		if d := writes - 361*time.Millisecond; d.Abs() > off {
			t.Errorf("End() = %v without a write, want 361ms, give or take %v", writes, off)
		}
		if failed != 2 {
			t.Errorf("End() = %d failed, want 2", failed)
		}
	})
}

// Newest never decreases.
func TestNewest(t *testing.T) {
	l := &Load{}
	for _, revision := range []int64{3, 7, 5} {
		l.told(revision)
	}
	if got := l.Newest(); got != 7 {
		t.Errorf("Newest() = %d, want 7", got)
	}
}
