package raftwal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/raftwal/fs"
)

const noLimit = math.MaxUint64

// nonces counts through all logs of the process: one that came twice could
// bring old batches back.
var nonces atomic.Uint64

// testConfig is a log of small segments on disk.
func testConfig(disk fs.FS) Config {
	return Config{
		FS:             disk,
		SegmentSize:    minSegmentSize,
		MaxRecentBytes: 2 << 10,
		Inline:         true,
		Nonce:          func() uint64 { return nonces.Add(1) * 0x9e3779b97f4a7c15 },
	}
}

func mustOpen(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is an entry of raft, with data that depends on its term and index.
func entry(term, index uint64, size int) *raftpb.Entry {
	r := rand.New(rand.NewPCG(term, index))
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return &raftpb.Entry{Term: &term, Index: &index, Type: raftpb.EntryNormal.Enum(), Data: data}
}

// entries are the entries of a term with indexes in [lo, hi).
func entries(term, lo, hi uint64, size int) []*raftpb.Entry {
	var out []*raftpb.Entry
	for i := lo; i < hi; i++ {
		out = append(out, entry(term, i, size))
	}
	return out
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return hardState{term: term, vote: vote, commit: commit}.proto()
}

func snapshot(term, index uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{
		Data: fmt.Appendf(nil, "state at %d", index),
		Metadata: &raftpb.SnapshotMetadata{
			Term: &term, Index: &index,
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}, AutoLeave: new(false)},
		},
	}
}

// segmentNames returns the names of the segments on disk, in order.
func segmentNames(t testing.TB, disk *fs.Memory) (names []string) {
	t.Helper()
	files, err := list(disk)
	must(t, err)
	for _, id := range files.segments {
		names = append(names, segmentName(id))
	}
	return names
}

// all returns every entry of the log.
func all(t testing.TB, l *Log) []*raftpb.Entry {
	t.Helper()
	first, err := l.FirstIndex()
	must(t, err)
	last, err := l.LastIndex()
	must(t, err)
	if first > last {
		return nil
	}
	got, err := l.Entries(first, last+1, noLimit)
	if err != nil {
		t.Fatalf("Entries(%d, %d) = %v", first, last+1, err)
	}
	return got
}

// sameEntries says how two lists of entries differ.
func sameEntries(got, want []*raftpb.Entry) error {
	for i := range min(len(got), len(want)) {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Errorf("entry %d = %s, want %s", i, raft.DescribeEntry(got[i], nil), raft.DescribeEntry(want[i], nil))
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d entries, want %d", len(got), len(want))
	}
	return nil
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child() // see kill_test.go
		return
	}
	goleak.VerifyTestMain(m)
}
