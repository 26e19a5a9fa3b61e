package hashcheck

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// replica is a member with a store.
type replica struct {
	*Member
	t     *testing.T
	store *store.Store
	index uint64
	// answer, if set, replaces the store's answer.
	answer func(revision int64) (store.Hash, error)
}

func newReplica(t *testing.T, name string, id uint64) *replica {
	t.Helper()
	backend, err := boltdb.Open(filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &replica{t: t, store: s}
	r.Member = &Member{ID: id, Name: name, Hash: func(_ context.Context, revision int64) (store.Hash, error) {
		if r.answer != nil {
			return r.answer(revision)
		}
		return s.HashKV(revision)
	}}
	return r
}

func (r *replica) apply(request *pb.InternalRaftRequest) {
	r.t.Helper()
	data, err := (&store.Command{Request: request}).Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	r.index++
	if res := r.store.Apply(r.index, 1, data); res.Err != nil {
		r.t.Fatal(res.Err)
	}
}

// put puts values under one key, so that a compaction frees versions.
func (r *replica) put(values ...string) {
	r.t.Helper()
	for _, v := range values {
		r.apply(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("key"), Value: []byte(v)}})
	}
}

func (r *replica) compact(revision int64) {
	r.t.Helper()
	r.apply(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision}})
}

// replicas returns members a, b, … with the values 1 to 9 at revisions 2 to 10.
func replicas(t *testing.T, n int) (all []*replica, members []*Member) {
	t.Helper()
	for i := range n {
		r := newReplica(t, string(rune('a'+i)), uint64(i+1))
		r.put("1", "2", "3", "4", "5", "6", "7", "8", "9")
		all, members = append(all, r), append(members, r.Member)
	}
	return all, members
}

// told formats a report.
func told(r *Report) string {
	var parts []string
	for _, group := range r.Groups {
		var names strings.Builder
		for _, m := range group {
			names.WriteString(m.Name)
		}
		parts = append(parts, names.String())
	}
	said := []string{strings.Join(parts, "|")}
	for _, u := range r.Unknown {
		said = append(said, u.Member.Name+"?")
	}
	for _, m := range r.Corrupt() {
		said = append(said, m.Name+"!")
	}
	return strings.Join(said, " ")
}

func TestCompare(t *testing.T) {
	lost := errors.New("unreachable")
	for _, test := range []struct {
		name    string
		members int
		do      func(all []*replica)
		want    string // groups, then unknown (?) and corrupt (!) members
	}{
		{"all agree", 3, func([]*replica) {}, "abc"},
		{"alone", 1, func([]*replica) {}, "a"},
		{"a value differs", 3, func(all []*replica) { all[1].put("x"); all[0].put("y"); all[2].put("y") }, "ac|b b!"},
		{"the first one's value differs", 3, func(all []*replica) { all[0].put("x"); all[1].put("y"); all[2].put("y") }, "bc|a a!"},
		{"a write is missing, and later ones came", 3, func(all []*replica) {
			all[0].put("10", "11")
			all[1].put("10", "11")
			all[2].put("11")
		}, "ab|c c!"},
		{"a write is missing in the compaction they share", 3, func(all []*replica) {
			all[0].put("10", "11", "12")
			all[1].put("10", "11", "12")
			all[2].put("10", "12", "13")
			for _, r := range all {
				r.compact(12)
			}
		}, "ab|c c!"},
		{"two differ of two", 2, func(all []*replica) { all[1].put("x"); all[0].put("y") }, "a|b"},
		{"all three differ", 3, func(all []*replica) {
			for i, r := range all {
				r.put(fmt.Sprint(i))
			}
		}, "a|b|c"},
		{"two of five differ", 5, func(all []*replica) {
			for i, r := range all {
				r.put(fmt.Sprint(i % 3 / 2))
			}
		}, "abde|c c!"},

		// None of these is a difference.
		{"one is behind", 3, func(all []*replica) { all[0].put("10"); all[1].put("10") }, "abc"},
		{"the first is behind", 3, func(all []*replica) { all[1].put("10"); all[2].put("10", "11") }, "abc"},
		{"one has yet to compact", 3, func(all []*replica) { all[0].compact(5); all[1].compact(5) }, "ab c?"},
		{"the first has yet to compact", 3, func(all []*replica) { all[1].compact(5); all[2].compact(5) }, "a b? c?"},
		{"one is behind the others' compaction", 3, func(all []*replica) {
			for _, r := range all[:2] {
				r.put("10", "11")
				r.compact(12)
			}
		}, "ab c?"},
		{"one does not answer", 3, func(all []*replica) {
			all[1].answer = func(int64) (store.Hash, error) { return store.Hash{}, lost }
		}, "ac b?"},
		{"an older version's empty store", 3, func(all []*replica) {
			all[2].answer = func(int64) (store.Hash, error) {
				h, err := all[0].store.HashKV(0)
				h.Hash = 0
				return h, err
			}
		}, "ab c?"},
		{"a difference that does not last", 3, func(all []*replica) {
			asked := 0
			all[2].answer = func(int64) (store.Hash, error) {
				h, err := all[0].store.HashKV(0)
				if asked++; asked == 1 {
					h.Hash++
				}
				return h, err
			}
		}, "abc"},
		{"a newer revision than was asked for", 3, func(all []*replica) {
			all[1].put("10")
			all[1].answer = func(int64) (store.Hash, error) { return all[1].store.HashKV(0) }
		}, "ac b?"},
		{"an older revision than was asked for", 3, func(all []*replica) {
			all[2].answer = func(int64) (store.Hash, error) { return all[2].store.HashKV(5) }
		}, "abc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, members := replicas(t, test.members)
			test.do(all)
			if got := told(Compare(t.Context(), members, Limits{time.Minute, time.Minute})); got != test.want {
				t.Errorf("Compare() = %q, want %q", got, test.want)
			}
		})
	}
}

// A silent member delays only its own comparison, and after a majority agrees only up to the limit.
func TestASilentMemberHidesNoOther(t *testing.T) {
	for _, test := range []struct {
		hashes []uint32 // 0: no answer
		want   string
		takes  time.Duration
	}{
		{[]uint32{1, 0, 2}, "a|c b?", 10 * time.Second},
		{[]uint32{1, 0, 2, 2, 2}, "cde|a b? a!", 10 * time.Second},
		{[]uint32{1, 2, 0, 2, 1}, "ae|bd c?", 10 * time.Second},
		{[]uint32{1, 0, 1}, "ac b?", 3 * time.Second},
		{[]uint32{1, 1, 0, 2, 1}, "abe|d c? d!", 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var members []*Member
			for i, h := range test.hashes {
				members = append(members, &Member{ID: uint64(i + 1), Name: string(rune('a' + i)), Hash: func(ctx context.Context, _ int64) (store.Hash, error) {
					if h == 0 {
						<-ctx.Done()
					}
					return store.Hash{Hash: h, HashRevision: 5}, ctx.Err() // like gRPC
				}})
			}
			begun := time.Now()
			got := told(Compare(t.Context(), members, Limits{Each: 10 * time.Second, Rest: 3 * time.Second}))
			if took := time.Since(begun); got != test.want || took != test.takes {
				t.Errorf("Compare(%v) = %q after %v, want %q after %v", test.hashes, got, took, test.want, test.takes)
			}
		})
	}
}

// A compaction between two answers is not a difference, and the hashes after it are compared.
func TestACompactionBetweenTwoAnswers(t *testing.T) {
	for _, differs := range []bool{false, true} {
		all, members := replicas(t, 2)
		want := "ab"
		if differs {
			all[0].put("x")
			all[1].put("y")
			want = "a|b"
		}
		all[1].answer = func(revision int64) (store.Hash, error) {
			h, err := all[1].store.HashKV(revision)
			if all[0].store.CompactRevision() < 8 {
				all[0].compact(8)
				all[1].compact(8)
			}
			return h, err
		}
		if got := told(Compare(t.Context(), members, Limits{time.Minute, time.Minute})); got != want || all[0].store.CompactRevision() != 8 {
			t.Errorf("Compare() = %q with values that differ: %v, want %q", got, differs, want)
		}
	}
}

// Members under load, which apply and free at different times, are compared and do not differ.
func TestMembersUnderLoadDoNotDiffer(t *testing.T) {
	all, members := replicas(t, 3)
	compared := 0
	for i := range 300 {
		// Each member is up to two steps behind the one before.
		for n, r := range all {
			for r.index < uint64(9+i-2*n) {
				if step := r.index + 1; step%7 == 0 && step > 20 {
					r.compact(int64(step) - 10 - int64(step)/7)
					continue
				}
				r.put(fmt.Sprint(r.index))
			}
		}
		report := Compare(t.Context(), members, Limits{time.Minute, time.Minute})
		if len(report.Groups) != 1 || len(report.Differences) != 0 {
			t.Fatalf("Compare() = %s after %d steps, want no differences", told(report), i)
		}
		compared += len(report.Groups[0]) - 1
		if slices.ContainsFunc(report.Unknown, func(u Unknown) bool { return !errors.Is(u.Err, ErrBehind) }) {
			t.Fatalf("Compare() = %v, want only members that are behind to be left out", report.Unknown)
		}
	}
	if compared < 300 {
		t.Errorf("%d comparisons had a result, want 300 of 600 at least", compared)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
