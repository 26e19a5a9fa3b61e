package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/leaderlease/go/raftwal/fs"
)

// TestRandomScripts runs random steps against the model, with crashes that come
// at random operations and leave random parts of what was not synced.
func TestRandomScripts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		p := &player{t: t, r: rand.New(rand.NewPCG(seed, 2)), disk: fs.NewMemory(), m: newModel()}
		p.cfg = testConfig(p.disk)
		p.cfg.SegmentSize = rapid.SampledFrom([]int64{4 << 10, 16 << 10, 1 << 20}).Draw(t, "segment")
		p.cfg.MaxRecentBytes = rapid.SampledFrom([]int64{-1, 100, 2000, 1 << 20}).Draw(t, "recent")
		p.cfg.MaxSpares = rapid.IntRange(-1, 3).Draw(t, "spares")
		p.open("the first start")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.step()
		}
		if err := p.l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// player plays random steps on a log, and on the model of it.
type player struct {
	t    *rapid.T
	r    *rand.Rand
	disk *fs.Memory
	cfg  Config
	l    *Log
	m    *model
}

func (p *player) open(after string) {
	var err error
	if p.l, err = Open(p.cfg); err != nil {
		p.t.Fatalf("Open() after %s = %v", after, err)
	}
}

func (p *player) step() {
	st := draw(p.m, p.r)
	next := p.m.clone()
	st.apply(next)
	crash := rapid.IntRange(0, 9).Draw(p.t, "crash") == 0
	if crash {
		p.crashSoon()
	}
	after, err := st.run(p.l, func() (*Log, error) { return Open(p.cfg) })
	if err == nil {
		p.l, p.m = after, next
	}
	if crash {
		p.crash(st.name, next)
		return
	}
	if err != nil {
		p.t.Fatalf("%s: %v", st.name, err)
	}
	if err := p.m.check(p.l, true); err != nil {
		p.t.Fatalf("%s: %v", st.name, err)
	}
}

// crashSoon has the disk fail within the next operations.
func (p *player) crashSoon() { p.disk.SetHook(fs.CrashAt(p.disk.Ops() + 1 + p.r.IntN(4))) }

// crash ends the machine in a step that would have led to next. Often the process
// ends first, and the next one sees what it had not synced before the machine
// crashes.
func (p *player) crash(step string, next *model) {
	for ended := p.r.IntN(2) == 0; ended; ended = p.r.IntN(3) == 0 {
		p.restart(p.disk.EndProcess(), next, step+", then the end of the process")
		next = p.m
		if p.r.IntN(2) == 0 {
			p.crashSoon()
			u := Update{Entries: []*raftpb.Entry{entry(p.m.hard.term+1, p.m.last()+1, 300)}, HardState: hard(p.m.hard.term+1, 0, p.m.hard.commit)}
			_ = p.l.Save(u.Entries, u.HardState, nil)
			next = p.m.clone()
			next.save(u)
		}
	}
	p.restart(p.disk.Crash(fs.Survival(p.r.IntN(3)), p.r), next, step+", then a crash")
	// The commit index may be back where it was durable.
	p.m.hard = p.l.mu.view.hard
	p.m.durable = p.m.hard
}

// restart opens the log on what is left of the disk: next, or what was before it.
func (p *player) restart(disk *fs.Memory, next *model, after string) {
	p.disk, p.cfg.FS = disk, disk
	p.open(after)
	if next.check(p.l, true) == nil {
		p.m = next
	}
	if err := p.m.check(p.l, true); err != nil {
		p.t.Fatalf("%s: %v", after, err)
	}
}

// entrySize must be what raft counts, whichever fields are set.
func TestEntrySizeIsRafts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		if got, want := entrySize(e), uint64(protoSize(e)); got != want {
			t.Errorf("entrySize(%v) = %d, want %d", e, got, want)
		}
	})
}

// An entry comes back as it was, nil fields included.
func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		b := appendEntry(nil, e)
		seal(b, 7)
		r, reason := parseRecord(b, 7)
		if reason != "" || r.size != len(b) {
			t.Fatalf("parseRecord() = %+v, %q", r, reason)
		}
		got := decodeEntry(&r)
		if !protoEqual(got, e) || (got.Data == nil) != (e.Data == nil) {
			t.Errorf("decodeEntry() = %v, want %v", got, e)
		}
		if _, reason := parseRecord(b, 8); reason == "" {
			t.Error("the record is valid after another one")
		}
	})
}

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
