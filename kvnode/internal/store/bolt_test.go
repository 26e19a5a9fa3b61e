package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// goodDB makes a database of several pages, and returns its bytes without the space that bbolt
// reserves at the end.
func goodDB(t *testing.T) (path string, data []byte) {
	t.Helper()
	path = dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	for i := range 400 {
		r.put(fmt.Sprintf("key%03d", i%300), strings.Repeat("v", i%90))
	}
	checkpoint(t, r.Store)
	data, err := os.ReadFile(saveSnapshot(t, r.Store, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// openBytes opens data as a database and loads it.
func openBytes(t *testing.T, path string, data []byte) (*store.Store, error) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := boltdb.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Backend: b})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func TestOpenRefusesWhatIsNotOurs(t *testing.T) {
	path, good := goodDB(t)
	edit := func(fn func(meta *bbolt.Bucket) error) []byte {
		p := filepath.Join(t.TempDir(), "edited")
		if err := os.WriteFile(p, good, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(p, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return fn(tx.Bucket([]byte("meta"))) }), db.Close()); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"an empty file", nil, store.ErrForeign},
		{"text", bytes.Repeat([]byte("hello"), 10_000), store.ErrForeign},
		{"another program's database", edit(func(m *bbolt.Bucket) error { return m.Delete([]byte("kvnode-format")) }), store.ErrForeign},
		{"a newer format", edit(func(m *bbolt.Bucket) error { return m.Put([]byte("kvnode-format"), []byte("2")) }), store.ErrFormat},
		{"a state that was changed", edit(func(m *bbolt.Bucket) error { return m.Put([]byte("state"), []byte("12345{}")) }), store.ErrDamaged},
		{"a state that is missing", edit(func(m *bbolt.Bucket) error { return m.Delete([]byte("state")) }), store.ErrDamaged},
		{"a record that is missing", edit(func(m *bbolt.Bucket) error {
			records := m.Tx().Bucket([]byte("key"))
			key, _ := records.Cursor().First()
			return records.Delete(key)
		}), store.ErrDamaged},
		{"a file that was cut", good[:len(good)-5000], store.ErrDamaged},
		{"a file that was cut to its first pages", good[:8192], store.ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			if s, err := openBytes(t, path, c.data); !errors.Is(err, c.want) {
				t.Errorf("open %s = %v, %v, want %v", c.name, s, err, c.want)
			}
		})
	}
	if s, err := openBytes(t, path, good); err != nil {
		t.Errorf("open the original = %v", err)
	} else {
		shut(t, s)
	}
	if _, err := boltdb.Open(filepath.Dir(path)); err == nil {
		t.Error("Open(a directory) = nil, want an error")
	}
}

// Any flipped bit in a database is detected or harmless.
func TestDamageIsRefusedOrHarmless(t *testing.T) {
	path, good := goodDB(t)
	s, err := openBytes(t, path, good)
	if err != nil {
		t.Fatal(err)
	}
	want := hashOf(t, s)
	shut(t, s)
	refused, harmless := 0, 0
	step := max(len(good)/300, 1)
	for at := 0; at < len(good); at += step {
		data := bytes.Clone(good)
		data[at] ^= 1 << (at % 8)
		s, err := openBytes(t, path, data)
		if err != nil {
			refused++
			continue
		}
		// A damaged newest meta page leads to the checkpoint before it.
		if got := hashOf(t, s); got != want && s.Applied() != 0 {
			t.Errorf("a bit flipped at %d: HashKV = %+v, want %+v or a refusal", at, got, want)
		}
		harmless++
		shut(t, s)
	}
	if refused < 30 || harmless == 0 {
		t.Errorf("%d refused, %d harmless, want a good part of both", refused, harmless)
	}
}

// A refused snapshot leaves the state and the file as they are.
func TestRestoreRefusesDamage(t *testing.T) {
	_, good := goodDB(t)
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	defer func() { shut(t, r) }()
	r.put("mine", "1")
	before := hashOf(t, r.Store)
	snap := filepath.Join(t.TempDir(), "snap")
	flipped := bytes.Clone(good)
	flipped[bytes.LastIndex(flipped, []byte("key250"))] ^= 4
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte("not a snapshot"), "cut": good[:len(good)/2], "flipped": flipped} {
		if err := os.WriteFile(snap, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Restore(snap); !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrForeign) {
			t.Errorf("Restore(%s) = %v, want a refusal", name, err)
		}
		if _, err := os.Stat(snap); err != nil {
			t.Errorf("Restore(%s) took the file away: %v", name, err)
		}
	}
	if err := r.Restore(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Restore(missing) = %v", err)
	}
	if got := hashOf(t, r.Store); got != before {
		t.Errorf("HashKV = %+v after refusals, want %+v", got, before)
	}
	checkpoint(t, r.Store)
	shut(t, r)
	r.Store = openBolt(t, path)
	if got := hashOf(t, r.Store); got != before {
		t.Errorf("HashKV = %+v after refusals and a restart, want %+v", got, before)
	}
}

// A snapshot stays readable during checkpoints, a defragmentation and a restore.
func TestSnapshotStaysWhileTheStoreGoesOn(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	defer func() { shut(t, r) }()
	script(r, 1, 100)
	at := checkpoint(t, r.Store)
	want := hashOf(t, r.Store)
	snap, err := r.OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	other := saveSnapshot(t, r.Store, t.TempDir())
	for range 300 {
		r.put("big", strings.Repeat("x", 10_000))
	}
	checkpoint(t, r.Store)
	if err := r.Defragment(t.Context()); err != nil {
		t.Fatalf("Defragment() with a snapshot open = %v", err)
	}
	if err := r.Restore(other); err != nil {
		t.Fatalf("Restore() with a snapshot open = %v", err)
	}
	if got := hashOf(t, r.Store); got != want || r.Applied() != at.Index || r.Durable().Index != at.Index {
		t.Errorf("after Restore: %+v at %d, want %+v at %d", got, r.Applied(), want, at.Index)
	}
	file := writeSnapshot(t, snap, t.TempDir())
	c, err := boltdb.ReadCheckpoint(file)
	if err != nil || c.Index != at.Index || c.Revision != at.Revision || snap.Checkpoint().Index != at.Index {
		t.Errorf("ReadCheckpoint() = %+v, %v, want %+v", c, err, at)
	}
	follower := openBolt(t, dbPath(t))
	defer follower.Close()
	if err := follower.Restore(file); err != nil {
		t.Fatalf("Restore() on a follower = %v", err)
	}
	if got := hashOf(t, follower); got != want {
		t.Errorf("HashKV of a follower = %+v, want %+v", got, want)
	}
	// The restored state is durable and accepts further entries.
	replay(r.Store, r.log)
	last := hashOf(t, r.Store)
	checkpoint(t, r.Store)
	shut(t, r)
	r.Store = openBolt(t, path)
	if got := hashOf(t, r.Store); got != last {
		t.Errorf("HashKV after a restart = %+v, want %+v", got, last)
	}
}

func TestSnapshotsWithoutACheckpointAreRefused(t *testing.T) {
	s := openBolt(t, dbPath(t))
	defer s.Close()
	file := saveSnapshot(t, s, t.TempDir())
	if _, err := boltdb.ReadCheckpoint(file); !errors.Is(err, store.ErrNoCheckpoint) {
		t.Errorf("ReadCheckpoint() = %v, want %v", err, store.ErrNoCheckpoint)
	}
	if err := s.Restore(file); !errors.Is(err, store.ErrNoCheckpoint) {
		t.Errorf("Restore() = %v, want %v", err, store.ErrNoCheckpoint)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := dbPath(t)
	s := openBolt(t, path)
	if _, err := boltdb.Open(path); err == nil {
		t.Error("Open() of a database that is open = nil, want an error")
	}
	shut(t, s)
	shut(t, openBolt(t, path))
}

// Open removes temporary files of a creation or a defragmentation that crashed.
func TestWhatACrashLeavesBesideADatabaseIsRemoved(t *testing.T) {
	path := dbPath(t)
	for _, left := range []string{path + ".new", path + ".defrag"} {
		if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, openBolt(t, path))
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("%v, %v in the directory, want the database alone", files, err)
	}
}

func TestAClosedStoreRefusesWork(t *testing.T) {
	s := openBolt(t, dbPath(t))
	snap, err := s.OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close(), snap.Close(), snap.Close()); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if _, err := s.SaveCheckpoint(nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("SaveCheckpoint() = %v, want %v", err, store.ErrClosed)
	}
	if _, err := s.OpenSnapshot(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("OpenSnapshot() = %v, want %v", err, store.ErrClosed)
	}
	if err := s.Restore("nowhere"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Restore() = %v, want %v", err, store.ErrClosed)
	}
	if err := s.Defragment(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Defragment() = %v, want %v", err, store.ErrClosed)
	}
}

func TestDefragmentGivesSpaceBack(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	defer func() { shut(t, r) }()
	for i := range 200 {
		r.put(fmt.Sprint("k", i), strings.Repeat("x", 10_000))
	}
	checkpoint(t, r.Store)
	r.must(del("k", "l"))
	r.put("k", "small")
	r.must(compact(r.Revision()))
	before, _ := r.Size()
	freeCompacted(r)
	checkpoint(t, r.Store)
	if _, inUse := r.Size(); inUse > before/4 {
		t.Errorf("%d bytes in use of %d after everything was deleted", inUse, before)
	}
	if err := r.Defragment(t.Context()); err != nil {
		t.Fatalf("Defragment() = %v", err)
	}
	total, inUse := r.Size()
	if info, err := os.Stat(path); err != nil || total > before/4 || inUse > total || info.Size() >= before {
		t.Errorf("Size() = %d, %d after a defragmentation, was %d", total, inUse, before)
	}
	r.put("k", "later")
	checkpoint(t, r.Store)
	want := hashOf(t, r.Store)
	shut(t, r)
	r.Store = openBolt(t, path)
	if got := hashOf(t, r.Store); got != want {
		t.Errorf("HashKV = %+v after a restart, want %+v", got, want)
	}
}

// A failed defragmentation leaves no file behind, which would use the space that the next one
// needs.
func TestDefragmentLeavesNothingBehind(t *testing.T) {
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	defer func() { _ = r.Close() }()
	r.put("k", "v")
	checkpoint(t, r.Store)
	part := path + ".defrag"
	half, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(part, half, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Defragment(t.Context()); err != nil {
		t.Fatalf("Defragment() beside what another has left = %v", err)
	}
	// A directory with the file's name makes the rename fail.
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := r.Defragment(t.Context()); err == nil {
		t.Fatal("Defragment() that cannot replace the file = nil")
	}
	if _, err := os.Stat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat() of the new file after a failure = %v, want it gone", err)
	}
}

func TestDefragmentWaitsForACheckpointUntilItsContextEnds(t *testing.T) {
	r := newReplica(t)
	r.put("a", "1")
	if _, err := r.SaveCheckpoint(func(uint64) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Defragment(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Defragment() during a checkpoint = %v, want %v", err, context.Canceled)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
