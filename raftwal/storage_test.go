package raftwal

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/raftwal/fs"
)

// storage is what raft.MemoryStorage and a Log have in common, in the words of
// the former.
type storage interface {
	raft.Storage
	Append(entries []*raftpb.Entry) error
	ApplySnapshot(snap *raftpb.Snapshot) error
	CreateSnapshot(i uint64, cs *raftpb.ConfState, data []byte) (*raftpb.Snapshot, error)
	Compact(i uint64) error
	SetHardState(h *raftpb.HardState) error
}

// logStorage speaks MemoryStorage's words.
type logStorage struct{ *Log }

func (l logStorage) Append(entries []*raftpb.Entry) error { return l.Save(entries, nil, nil) }

func (l logStorage) SetHardState(h *raftpb.HardState) error { return l.Save(nil, h, nil) }

func (l logStorage) ApplySnapshot(snap *raftpb.Snapshot) error {
	if old, _ := l.Log.Snapshot(); old.GetMetadata().GetIndex() >= snap.GetMetadata().GetIndex() {
		return raft.ErrSnapOutOfDate // Save takes it for no news
	}
	return l.Save(nil, nil, snap)
}

func (l logStorage) CreateSnapshot(i uint64, cs *raftpb.ConfState, data []byte) (*raftpb.Snapshot, error) {
	err := l.SaveSnapshot(&raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: &i, ConfState: cs}})
	if err != nil {
		return nil, err
	}
	return l.Log.Snapshot()
}

// onBoth runs f over raft's storage, over ours, over ours with nothing in
// memory, and over ours read back from the disk after each step.
func onBoth(t *testing.T, f func(t *testing.T, s storage, reopen func() storage)) {
	t.Run("storage=raft", func(t *testing.T) {
		s := raft.NewMemoryStorage()
		f(t, s, func() storage { return s })
	})
	for _, recent := range []int64{1 << 20, 100, -1} {
		t.Run(fmt.Sprintf("storage=raftwal/recent=%d", recent), func(t *testing.T) {
			cfg := testConfig(fs.NewMemory())
			cfg.MaxRecentBytes = recent
			l := mustOpen(t, cfg)
			t.Cleanup(func() { must(t, l.Close()) })
			f(t, logStorage{l}, func() storage {
				must(t, l.Close())
				l = mustOpen(t, cfg)
				return logStorage{l}
			})
		})
	}
}

// start puts a snapshot at index 3 and entries 4 to 6 into s.
func start(t *testing.T, s storage) []*raftpb.Entry {
	t.Helper()
	must(t, s.ApplySnapshot(snapshot(3, 3)))
	e := slices.Concat(entries(4, 4, 5, 40), entries(5, 5, 6, 40), entries(6, 6, 7, 40))
	must(t, s.Append(e))
	return e
}

func TestStorageTerm(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		start(t, s)
		for range 2 {
			for _, tt := range []struct {
				i, term uint64
				err     error
			}{
				{2, 0, raft.ErrCompacted},
				{3, 3, nil},
				{4, 4, nil},
				{5, 5, nil},
				{6, 6, nil},
				{7, 0, raft.ErrUnavailable},
				{math.MaxUint64, 0, raft.ErrUnavailable},
			} {
				if tt.i == math.MaxUint64 {
					if _, ok := s.(logStorage); !ok {
						continue // raft's computes with int and panics
					}
				}
				if term, err := s.Term(tt.i); term != tt.term || !errors.Is(err, tt.err) {
					t.Errorf("Term(%d) = %d, %v, want %d, %v", tt.i, term, err, tt.term, tt.err)
				}
			}
			s = reopen()
		}
	})
}

func TestStorageEntries(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		e := start(t, s)
		size := func(e ...*raftpb.Entry) (n uint64) {
			for _, e := range e {
				n += uint64(proto.Size(e))
			}
			return n
		}
		for range 2 {
			for _, tt := range []struct {
				name        string
				lo, hi, max uint64
				want        []*raftpb.Entry
				err         error
			}{
				{"before the beginning", 2, 6, noLimit, nil, raft.ErrCompacted},
				{"the snapshot's own", 3, 4, noLimit, nil, raft.ErrCompacted},
				{"the first", 4, 5, noLimit, e[:1], nil},
				{"two", 4, 6, noLimit, e[:2], nil},
				{"all", 4, 7, noLimit, e, nil},
				{"the last", 6, 7, noLimit, e[2:], nil},
				{"none", 5, 5, noLimit, nil, nil},
				{"even without room, one", 4, 7, 0, e[:1], nil},
				{"room for less than one", 4, 7, size(e[0]) - 1, e[:1], nil},
				{"room for one", 4, 7, size(e[0]), e[:1], nil},
				{"room for less than two", 4, 7, size(e[:2]...) - 1, e[:1], nil},
				{"room for two", 4, 7, size(e[:2]...), e[:2], nil},
				{"room for less than three", 4, 7, size(e...) - 1, e[:2], nil},
				{"room for three", 4, 7, size(e...), e, nil},
			} {
				got, err := s.Entries(tt.lo, tt.hi, tt.max)
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: Entries(%d, %d, %d) = %v, want %v", tt.name, tt.lo, tt.hi, tt.max, err, tt.err)
				}
				if diff := sameEntries(got, tt.want); diff != nil {
					t.Errorf("%s: Entries(%d, %d, %d): %v", tt.name, tt.lo, tt.hi, tt.max, diff)
				}
			}
			s = reopen()
		}
	})
}

// Where raft's own storage panics, a Log returns an error that raft panics on.
func TestEntriesOutOfRangeAreUnavailable(t *testing.T) {
	l := mustOpen(t, testConfig(fs.NewMemory()))
	defer l.Close()
	start(t, logStorage{l})
	for _, r := range [][2]uint64{{4, 8}, {7, 8}, {6, 5}, {math.MaxUint64, math.MaxUint64}} {
		if _, err := l.Entries(r[0], r[1], noLimit); !errors.Is(err, raft.ErrUnavailable) {
			t.Errorf("Entries(%d, %d) = %v, want %v", r[0], r[1], err, raft.ErrUnavailable)
		}
	}
}

// The caller owns the slice: its changes are not visible to other callers.
func TestEntriesAreTheCallers(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, _ func() storage) {
		e := start(t, s)
		got, err := s.Entries(4, 6, noLimit)
		must(t, err)
		_ = append(got, entry(9, 6, 1))
		got, err = s.Entries(4, 7, noLimit)
		must(t, err)
		if diff := sameEntries(got, e); diff != nil {
			t.Errorf("Entries(4, 7): %v", diff)
		}
	})
}

func TestStorageIndexes(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		check := func(wantFirst, wantLast uint64) {
			t.Helper()
			for range 2 {
				first, err1 := s.FirstIndex()
				last, err2 := s.LastIndex()
				if first != wantFirst || last != wantLast || err1 != nil || err2 != nil {
					t.Errorf("FirstIndex(), LastIndex() = %d, %v, %d, %v, want %d, %d", first, err1, last, err2, wantFirst, wantLast)
				}
				s = reopen()
			}
		}
		check(1, 0)
		if _, err := s.Entries(1, 1, noLimit); !errors.Is(err, raft.ErrUnavailable) {
			t.Errorf("Entries() of an empty log = %v, want %v", err, raft.ErrUnavailable)
		}
		start(t, s)
		check(4, 6)
		must(t, s.Append(entries(7, 7, 8, 10)))
		check(4, 7)
		_, err := s.CreateSnapshot(5, nil, nil)
		must(t, err)
		check(4, 7)
		must(t, s.Compact(5))
		check(6, 7)
	})
}

func TestStorageAppend(t *testing.T) {
	type run = struct{ term, lo, hi uint64 }
	build := func(runs []run) (out []*raftpb.Entry) {
		for _, r := range runs {
			out = append(out, entries(r.term, r.lo, r.hi, 20)...)
		}
		return out
	}
	for _, tt := range []struct {
		name        string
		add, remain []run
	}{
		{"what is compacted is left out", []run{{3, 1, 3}}, []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 7}}},
		{"the same once more", []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 7}}, []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 7}}},
		{"a conflict in the middle", []run{{4, 4, 5}, {7, 5, 7}}, []run{{4, 4, 5}, {7, 5, 7}}},
		{"the same and more", []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 8}}, []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 8}}},
		{"compacted ones and a shorter end", []run{{3, 2, 4}, {7, 4, 5}}, []run{{7, 4, 5}}},
		{"a conflict makes the log shorter", []run{{7, 5, 6}}, []run{{4, 4, 5}, {7, 5, 6}}},
		{"directly behind", []run{{6, 7, 8}}, []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 8}}},
		{"nothing", nil, []run{{4, 4, 5}, {5, 5, 6}, {6, 6, 7}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
				start(t, s)
				must(t, s.Append(build(tt.add)))
				want := build(tt.remain)
				for range 2 {
					last, err := s.LastIndex()
					must(t, err)
					got, err := s.Entries(4, last+1, noLimit)
					if diff := errors.Join(err, sameEntriesBut(got, want)); diff != nil {
						t.Errorf("Entries(4, %d): %v", last+1, diff)
					}
					s = reopen()
				}
			})
		})
	}
}

// sameEntriesBut compares what start has saved with other sizes, too.
func sameEntriesBut(got, want []*raftpb.Entry) error {
	for i := range min(len(got), len(want)) {
		if idOf(got[i]) != idOf(want[i]) {
			return fmt.Errorf("entry %d = %+v, want %+v", i, idOf(got[i]), idOf(want[i]))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	return nil
}

func TestGapsAreRefused(t *testing.T) {
	l := mustOpen(t, testConfig(fs.NewMemory()))
	defer l.Close()
	e := start(t, logStorage{l})
	for name, bad := range map[string][]*raftpb.Entry{
		"after the end":    {entry(6, 8, 1)},
		"within the batch": {entry(6, 7, 1), entry(6, 9, 1)},
		"backwards":        {entry(6, 7, 1), entry(6, 6, 1)},
	} {
		if err := l.Save(bad, nil, nil); !errors.Is(err, ErrGap) {
			t.Errorf("%s: Save() = %v, want %v", name, err, ErrGap)
		}
	}
	if diff := sameEntries(all(t, l), e); diff != nil {
		t.Errorf("after refused entries: %v", diff)
	}
}

var (
	protoSize  = proto.Size
	protoEqual = proto.Equal
)

// drawEntry returns an entry of which any field may be nil.
func drawEntry(t *rapid.T) *raftpb.Entry {
	e := &raftpb.Entry{}
	number := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64())
	if rapid.Bool().Draw(t, "has term") {
		e.Term = new(number.Draw(t, "term"))
	}
	if rapid.Bool().Draw(t, "has index") {
		e.Index = new(number.Draw(t, "index"))
	}
	if rapid.Bool().Draw(t, "has type") {
		e.Type = raftpb.EntryType(rapid.IntRange(0, 2).Draw(t, "type")).Enum()
	}
	if rapid.Bool().Draw(t, "has data") {
		e.Data = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")...)
	}
	return e
}
