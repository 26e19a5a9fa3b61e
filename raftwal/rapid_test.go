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
		r := rand.New(rand.NewPCG(seed, 2))
		disk := fs.NewMemory()
		cfg := testConfig(disk)
		cfg.SegmentSize = rapid.SampledFrom([]int64{4 << 10, 16 << 10, 1 << 20}).Draw(t, "segment")
		cfg.MaxRecentBytes = rapid.SampledFrom([]int64{-1, 100, 2000, 1 << 20}).Draw(t, "recent")
		cfg.MaxSpares = rapid.IntRange(-1, 3).Draw(t, "spares")
		m := newModel()
		l, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			st := draw(m, r)
			next := m.clone()
			st.apply(next)
			crash := rapid.IntRange(0, 9).Draw(t, "crash") == 0
			if crash {
				disk.SetHook(fs.CrashAt(disk.Ops() + 1 + r.IntN(4)))
			}
			after, err := st.run(l, func() (*Log, error) { return Open(cfg) })
			if err == nil {
				l, m = after, next
			}
			if !crash {
				if err != nil {
					t.Fatalf("%s: %v", st.name, err)
				}
				if err := m.check(l, true); err != nil {
					t.Fatalf("%s: %v", st.name, err)
				}
				continue
			}
			// Often the process ends first, and the next one sees what it had not
			// synced before the machine crashes.
			for ended := r.IntN(2) == 0; ended; ended = r.IntN(3) == 0 {
				disk = disk.EndProcess()
				cfg.FS = disk
				if l, err = Open(cfg); err != nil {
					t.Fatalf("%s: Open() after the process has ended = %v", st.name, err)
				}
				if next.check(l, true) == nil {
					m = next
				}
				if err := m.check(l, true); err != nil {
					t.Fatalf("%s, then the end of the process: %v", st.name, err)
				}
				next = m
				if r.IntN(2) == 0 {
					disk.SetHook(fs.CrashAt(disk.Ops() + 1 + r.IntN(4)))
					e := entry(m.hard.term+1, m.last()+1, 300)
					_ = l.Save([]*raftpb.Entry{e}, hard(m.hard.term+1, 0, m.hard.commit), nil)
					next = m.clone()
					next.save(Update{Entries: []*raftpb.Entry{e}, HardState: hard(m.hard.term+1, 0, m.hard.commit)})
				}
			}
			disk = disk.Crash(fs.Survival(r.IntN(3)), r)
			cfg.FS = disk
			if l, err = Open(cfg); err != nil {
				t.Fatalf("%s: Open() after a crash = %v", st.name, err)
			}
			if next.check(l, true) == nil {
				m = next
			}
			if err := m.check(l, true); err != nil {
				t.Fatalf("%s, then a crash: %v", st.name, err)
			}
			// The commit index may be back where it was durable.
			m.hard = l.mu.view.hard
			m.durable = m.hard
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
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
