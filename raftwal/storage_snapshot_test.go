package raftwal

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/raftwal/fs"
)

func TestStorageCompact(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		e := start(t, s)
		_, err := s.CreateSnapshot(6, nil, nil)
		must(t, err)
		for _, tt := range []struct {
			i   uint64
			err error
		}{{2, raft.ErrCompacted}, {3, raft.ErrCompacted}, {4, nil}, {4, raft.ErrCompacted}, {5, nil}, {6, nil}} {
			if err := s.Compact(tt.i); !errors.Is(err, tt.err) {
				t.Errorf("Compact(%d) = %v, want %v", tt.i, err, tt.err)
			}
			if tt.err != nil {
				continue
			}
			s = reopen()
			if term, err := s.Term(tt.i); term != tt.i || err != nil {
				t.Errorf("Term(%d) = %d, %v, want %d: the last compacted term is kept", tt.i, term, err, tt.i)
			}
			if _, err := s.Entries(tt.i, 7, noLimit); !errors.Is(err, raft.ErrCompacted) {
				t.Errorf("Entries(%d, 7) = %v, want %v", tt.i, err, raft.ErrCompacted)
			}
			if tt.i < 6 {
				got, err := s.Entries(tt.i+1, 7, noLimit)
				if diff := sameEntries(got, e[tt.i-3:]); diff != nil || err != nil {
					t.Errorf("Entries(%d, 7): %v, %v", tt.i+1, diff, err)
				}
			}
		}
	})
}

func TestCompactStopsAtTheSnapshot(t *testing.T) {
	l := mustOpen(t, testConfig(fs.NewMemory()))
	defer l.Close()
	start(t, logStorage{l})
	if err := l.Compact(4); !errors.Is(err, ErrNotCheckpointed) {
		t.Errorf("Compact(4) with a snapshot at 3 = %v, want %v", err, ErrNotCheckpointed)
	}
}

func TestStorageCreateSnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		start(t, s)
		conf := &raftpb.ConfState{Voters: []uint64{7, 8, 9}, AutoLeave: new(false)}
		for _, tt := range []struct {
			i   uint64
			err error
		}{{4, nil}, {5, nil}, {5, raft.ErrSnapOutOfDate}, {4, raft.ErrSnapOutOfDate}} {
			data := fmt.Appendf(nil, "state at %d", tt.i)
			_, err := s.CreateSnapshot(tt.i, conf, data)
			if !errors.Is(err, tt.err) {
				t.Errorf("CreateSnapshot(%d) = %v, want %v", tt.i, err, tt.err)
			}
			if tt.err != nil {
				continue
			}
			s = reopen()
			want := &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: &tt.i, Term: &tt.i, ConfState: conf}}
			if got, err := s.Snapshot(); !proto.Equal(got, want) || err != nil {
				t.Errorf("Snapshot() = %v, %v, want %v", got, err, want)
			}
			if _, got, err := s.InitialState(); !proto.Equal(got, conf) || err != nil {
				t.Errorf("InitialState() = %v, %v, want %v", got, err, conf)
			}
		}
	})
}

func TestSnapshotBeyondTheLogIsRefused(t *testing.T) {
	l := mustOpen(t, testConfig(fs.NewMemory()))
	defer l.Close()
	start(t, logStorage{l})
	if err := l.SaveSnapshot(snapshot(6, 7)); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("SaveSnapshot(7) of a log that ends at 6 = %v, want %v", err, raft.ErrUnavailable)
	}
	if err := l.SaveSnapshot(snapshot(9, 5)); err == nil {
		t.Error("SaveSnapshot(5) with another term than the log's = nil")
	}
}

func TestStorageApplySnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, s storage, reopen func() storage) {
		for _, tt := range []struct {
			i   uint64
			err error
		}{{4, nil}, {3, raft.ErrSnapOutOfDate}, {4, raft.ErrSnapOutOfDate}, {9, nil}} {
			if err := s.ApplySnapshot(snapshot(tt.i, tt.i)); !errors.Is(err, tt.err) {
				t.Errorf("ApplySnapshot(%d) = %v, want %v", tt.i, err, tt.err)
			}
			s = reopen()
		}
		if got, err := s.Snapshot(); !proto.Equal(got, snapshot(9, 9)) || err != nil {
			t.Errorf("Snapshot() = %v, %v, want %v", got, err, snapshot(9, 9))
		}
		must(t, s.SetHardState(hard(9, 2, 9)))
		s = reopen()
		if got, _, err := s.InitialState(); hardOf(got) != (hardState{9, 2, 9}) || err != nil {
			t.Errorf("InitialState() = %v, %v, want term 9, vote 2, commit 9", got, err)
		}
	})
}
