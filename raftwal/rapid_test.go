package raftwal

import (
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
