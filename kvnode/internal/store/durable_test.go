package store_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/storetest"
	"github.com/leaderlease/go/raftwal/fs"
)

// commit is a commit of bbolt: the file and its hash before and after.
type commit struct {
	before, after []byte
	old, new      store.Hash
}

func newCommit(t *testing.T) (c commit) {
	t.Helper()
	path := dbPath(t)
	r := &replica{t: t, Store: openBolt(t, path)}
	defer shut(t, r)
	checkpointOf := func(seed uint64) ([]byte, store.Hash) {
		script(r, seed, 300)
		checkpoint(t, r.Store)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data, hashOf(t, r.Store)
	}
	c.before, c.old = checkpointOf(1)
	c.after, c.new = checkpointOf(2)
	return c
}

// undurable is the disk after a process ended right before the second sync of a commit.
type undurable struct {
	commit
	disk *fs.Memory
}

const storeFile = "store.db"

// stop ends the process before that sync, or after it has failed.
func (c commit) stop(t *testing.T, syncFails bool) undurable {
	t.Helper()
	disk, metas := fs.NewMemory(), 2*os.Getpagesize()
	f, err := disk.Create(storeFile)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte, at int) {
		if _, err := f.WriteAt(data, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	write(c.before, 0)
	if err := errors.Join(f.Sync(), disk.Sync()); err != nil {
		t.Fatal(err)
	}
	write(c.after[metas:], metas)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	write(c.after[:metas], 0)
	if syncFails {
		disk.SetHook(fs.FailAt(disk.Ops()+1, errDisk))
		if err := f.Sync(); !errors.Is(err, errDisk) {
			t.Fatalf("Sync() = %v, want %v", err, errDisk)
		}
	}
	return undurable{c, disk.EndProcess()}
}

// ensureDurable runs EnsureDurable as the next process does.
func (u *undurable) ensureDurable(t *testing.T) error {
	t.Helper()
	f, err := u.disk.Open(storeFile)
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(boltdb.EnsureDurable(f, int64(os.Getpagesize())), f.Close())
}

// hash loads the file of disk and returns its hash.
func (u *undurable) hash(t *testing.T, disk *fs.Memory) store.Hash {
	t.Helper()
	s, err := openBytes(t, dbPath(t), disk.Bytes(storeFile))
	if err != nil {
		t.Fatalf("open what a power failure has left = %v", err)
	}
	defer shut(t, s)
	return hashOf(t, s)
}

// Data that was in memory only survives a power failure after EnsureDurable. A sync alone does not repair
// an earlier sync that failed.
func TestEnsureDurableAfterAFailedCommit(t *testing.T) {
	for name, syncFails := range map[string]bool{"the process ends before the sync": false, "the sync fails": true} {
		t.Run(name, func(t *testing.T) {
			u := newCommit(t).stop(t, syncFails)
			if got := u.hash(t, u.disk); got != u.new {
				t.Fatalf("the next process finds %+v, want %+v", got, u.new)
			}
			if got := u.hash(t, u.disk.Durable()); got != u.old {
				t.Fatalf("durable before EnsureDurable is %+v, want %+v", got, u.old)
			}
			if err := u.ensureDurable(t); err != nil {
				t.Fatalf("EnsureDurable() = %v", err)
			}
			if got := u.hash(t, u.disk.Durable()); got != u.new {
				t.Errorf("durable after EnsureDurable is %+v, want %+v", got, u.new)
			}
		})
	}
}

// A power failure during EnsureDurable leaves the old checkpoint or the new one.
func TestPowerFailureWithinEnsureDurable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	found := make(map[store.Hash]int)
	c := newCommit(t)
	for step := 1; step <= 2; step++ {
		for range 8 {
			u := c.stop(t, true)
			u.disk.SetHook(fs.CrashAt(u.disk.Ops() + step))
			if err := u.ensureDurable(t); !errors.Is(err, fs.ErrCrashed) {
				t.Fatalf("EnsureDurable() in a power failure at step %d = %v, want %v", step, err, fs.ErrCrashed)
			}
			found[u.hash(t, u.disk.Crash(fs.Something, random))]++
		}
	}
	if found[c.old] == 0 || found[c.new] == 0 || len(found) != 2 {
		t.Errorf("found %v, want the old one and the new one", found)
	}
}

// EnsureDurable writes nothing to a file that it cannot read.
func TestEnsureDurableRefusesDamage(t *testing.T) {
	disk := fs.NewMemory()
	disk.SetBytes(storeFile, make([]byte, 4*os.Getpagesize()))
	u := undurable{disk: disk}
	ops := disk.Ops()
	if err := u.ensureDurable(t); !errors.Is(err, store.ErrForeign) {
		t.Errorf("EnsureDurable() of zeros = %v, want %v", err, store.ErrForeign)
	}
	if got := disk.Ops(); got != ops {
		t.Errorf("EnsureDurable() of zeros made %d changes", got-ops)
	}
}

// Open calls EnsureDurable for a real file: its modification time changes.
func TestOpenWritesAgain(t *testing.T) {
	path := dbPath(t)
	shut(t, openBolt(t, path))
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	shut(t, openBolt(t, path))
	if info, err := os.Stat(path); err != nil || !info.ModTime().After(long.Add(time.Minute)) {
		t.Errorf("%s was written at %v, %v, want it written by Open", path, info.ModTime(), err)
	}
}

// EnsureDurable changes no byte, and may run while a snapshot is read.
func TestEnsureDurableGoesUnseen(t *testing.T) {
	path := dbPath(t)
	b, err := boltdb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, Store: openStore(t, b)}
	script(r, 1, 100)
	checkpoint(t, r.Store)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := r.OpenSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureDurable(); err != nil {
		t.Fatalf("EnsureDurable() = %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("EnsureDurable() changed the file, or %v", err)
	}
	script(r, 2, 100)
	checkpoint(t, r.Store)
	shut(t, snap)
	want := hashOf(t, r.Store)
	shut(t, r)
	if err := b.EnsureDurable(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("EnsureDurable() after Close() = %v, want %v", err, store.ErrClosed)
	}
	again := openBolt(t, path)
	if got := hashOf(t, again); got != want {
		t.Errorf("HashKV = %+v after a restart, want %+v", got, want)
	}
	shut(t, again)
}

// A checkpoint that Open has loaded survives a power failure. Otherwise the state would fall behind
// the log.
func TestOpenEnsuresThatItsDataIsDurable(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	r.put("a", "1")
	checkpoint(t, r.Store)
	r.put("a", "2")
	disk.Fail(failing(storetest.OpSync))
	if _, err := r.SaveCheckpoint(nil); !errors.Is(err, errDisk) {
		t.Fatalf("SaveCheckpoint() = %v, want %v", err, errDisk)
	}
	disk.Fail(nil)
	next := openStore(t, disk.Open())
	found := next.Durable().Index
	disk.PowerFailure()
	last := openStore(t, disk.Open())
	if got := last.Durable().Index; found != 2 || got != found {
		t.Errorf("checkpoint %d after a power failure, the process before it began with %d, want 2 and 2", got, found)
	}
	for _, s := range []*store.Store{r.Store, next, last} {
		shut(t, s)
	}
}

// After a failed sync, the next checkpoint first makes the data durable that it starts from. If
// that fails, it writes nothing.
func TestCheckpointAfterAFailedOneEnsuresDurability(t *testing.T) {
	disk := storetest.NewDisk()
	r := &replica{t: t, Store: openStore(t, disk.Open())}
	r.put("a", "1")
	checkpoint(t, r.Store)
	disk.Fail(failing(storetest.OpSync))
	for range 3 {
		r.put("a", "more")
		if _, err := r.SaveCheckpoint(nil); !errors.Is(err, errDisk) {
			t.Fatalf("SaveCheckpoint() = %v, want %v", err, errDisk)
		}
	}
	wrote := false
	disk.Fail(func(op storetest.Op) error {
		wrote = wrote || op == storetest.OpUpdate
		if op == storetest.OpEnsureDurable {
			return errDisk
		}
		return nil
	})
	if _, err := r.SaveCheckpoint(nil); !errors.Is(err, errDisk) || wrote {
		t.Fatalf("SaveCheckpoint() without EnsureDurable = %v, wrote %v, want %v and nothing written", err, wrote, errDisk)
	}
	disk.Fail(nil)
	disk.PowerFailure()
	last := openStore(t, disk.Open())
	if got := last.Durable().Index; got != 2 {
		t.Errorf("checkpoint %d after a power failure, want 2: what the first had left, with which the others began", got)
	}
	replay(last, r.log)
	sameHash(t, r.Store, last)
	shut(t, last)
	shut(t, r)
}
