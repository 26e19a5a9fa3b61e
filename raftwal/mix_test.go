package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// A batch is written, interrupted and, after the restart, written differently
// at the same place; a crash then leaves of each sector what was there before,
// the first attempt or the second. Records that fill a sector each could be
// mixed at will if their CRCs did not continue each other.
func TestTwoAttemptsAtOnePlaceNeverMix(t *testing.T) {
	const sector, inRecord = 512, recordHeader + entryHeader + recordTrailer
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	// The batch in front ends where the first entry of the next one begins a
	// sector.
	fill := (2*sector - batchHeader - l.w.tail.end%sector - batchHeader - inRecord) % sector
	must(t, l.Save([]*raftpb.Entry{entry(1, 1, int(fill))}, nil, nil))
	if at := l.w.tail.end + batchHeader; at%sector != 0 {
		t.Fatalf("the next entry is at %d, want a multiple of %d", at, sector)
	}
	from, name := l.w.tail.end, l.w.seg.name
	must(t, l.Close())
	attempt := func(term uint64) ([]*raftpb.Entry, []byte) {
		c := cfg
		clone := disk.Clone()
		c.FS = clone
		l := mustOpen(t, c)
		defer l.Close()
		e := entries(term, 2, 5, sector-inRecord)
		for _, e := range e {
			e.Term = new(uint64(2)) // what differs is the data
		}
		must(t, l.Save(e, nil, nil))
		return e, clone.Bytes(name)
	}
	before := disk.Bytes(name)
	e1, one := attempt(10)
	e2, two := attempt(20)
	first, end := from/sector, (from+batchHeader+3*sector+sector-1)/sector
	for way, data := range mixtures([][]byte{before, one, two}, sector, first, end) {
		c := cfg
		clone := disk.Clone()
		clone.SetBytes(name, data)
		c.FS = clone
		l, err := Open(c)
		if err != nil {
			t.Fatalf("mixture %d: Open() = %v", way, err)
		}
		got := all(t, l)[1:]
		none, is1, is2 := sameEntries(got, nil), sameEntries(got, e1), sameEntries(got, e2)
		if none != nil && is1 != nil && is2 != nil {
			t.Errorf("mixture %d: neither nothing (%v) nor one of the attempts (%v; %v)", way, none, is1, is2)
		}
		must(t, l.Close())
	}
}

// What a recycled segment held before never comes back, wherever the new
// records end, even if they are the same to the byte but for the nonce.
func TestRecycledSegmentForgets(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	index := uint64(1)
	round := func() {
		for id := l.w.seg.id; l.w.seg.id == id; index++ {
			must(t, l.Save([]*raftpb.Entry{entry(1, index, 100)}, nil, nil))
		}
	}
	for range 8 {
		round()
		must(t, l.SaveSnapshot(snapshot(1, index-1)))
		if err := l.Compact(index - 1); err != nil {
			t.Fatal(err)
		}
	}
	if l.Stats().Recycled < 4 {
		t.Fatalf("Recycled = %d, want some", l.Stats().Recycled)
	}
	for i := range uint64(30) {
		must(t, l.Save([]*raftpb.Entry{entry(1, index+i, 100)}, nil, nil))
		if err := expectReopen(cfg, disk, index+i); err != nil {
			t.Fatalf("after entry %d: %v", index+i, err)
		}
	}
	must(t, l.Close())
}

// expectReopen opens a copy of disk and checks the last index.
func expectReopen(cfg Config, disk *fs.Memory, last uint64) error {
	cfg.FS = disk.Clone()
	l, err := Open(cfg)
	if err != nil {
		return err
	}
	if l.Recovered().Torn != nil {
		err = fmt.Errorf("torn tail %+v", l.Recovered().Torn)
	}
	if got := l.mu.view.last(); got != last {
		err = errors.Join(err, fmt.Errorf("last index %d, want %d", got, last))
	}
	return errors.Join(err, l.Close())
}

// mixtures returns the first of choices, with each sector from first up to end taken
// from any of them.
func mixtures(choices [][]byte, sector, first, end int64) (all [][]byte) {
	all = [][]byte{choices[0]}
	for s := first; s < end; s++ {
		var longer [][]byte
		for _, data := range all {
			for _, c := range choices {
				next := bytes.Clone(data)
				copy(next[s*sector:(s+1)*sector], c[s*sector:])
				longer = append(longer, next)
			}
		}
		all = longer
	}
	return all
}
