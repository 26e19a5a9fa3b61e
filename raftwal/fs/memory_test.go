package fs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, m FS, name string) File {
	t.Helper()
	f, err := m.Create(name)
	must(t, err)
	return f
}

func write(t testing.TB, f File, off int64, data []byte) {
	t.Helper()
	n, err := f.WriteAt(data, off)
	if n != len(data) || err != nil {
		t.Fatalf("WriteAt(%d bytes) = %d, %v", len(data), n, err)
	}
}

// Both file systems do the same as long as nothing fails.
func TestFileSystemsAgree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	must(t, MakeDir(dir))
	must(t, MakeDir(dir))
	onDisk, err := OS(dir)
	must(t, err)
	for name, m := range map[string]FS{"os": onDisk, "memory": NewMemory()} {
		t.Run(name, func(t *testing.T) {
			f := create(t, m, "one")
			if _, err := m.Create("one"); !errors.Is(err, fs.ErrExist) {
				t.Errorf("Create() of what exists = %v, want %v", err, fs.ErrExist)
			}
			write(t, f, 1000, []byte("hello"))
			must(t, f.Sync())
			if size, err := f.Size(); size != 1005 || err != nil {
				t.Errorf("Size() = %d, %v, want 1005", size, err)
			}
			must(t, m.Rename("one", "two"))
			must(t, m.Sync())
			b := make([]byte, 10)
			if n, err := f.ReadAt(b, 998); n != 7 || !errors.Is(err, io.EOF) || string(b[:n]) != "\x00\x00hello" {
				t.Errorf("ReadAt() = %d, %v, %q", n, err, b[:n])
			}
			must(t, f.Close())
			for _, open := range []func(string) (File, error){m.Open, m.OpenRead} {
				if _, err := open("one"); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("opening the old name = %v, want %v", err, fs.ErrNotExist)
				}
			}
			r, err := m.OpenRead("two")
			must(t, err)
			if _, err := r.WriteAt([]byte{1}, 0); err == nil {
				t.Error("WriteAt() on a file opened for reading = nil")
			}
			must(t, m.Remove("two"))
			if n, err := r.ReadAt(b[:5], 1000); n != 5 || err != nil {
				t.Errorf("ReadAt() of a removed file that is open = %d, %v, want 5", n, err)
			}
			must(t, r.Close())
			locksOnce(t, m)
			names, err := m.Names()
			must(t, err)
			if names = slices.DeleteFunc(names, func(s string) bool { return s == "lock" }); len(names) > 0 {
				t.Errorf("Names() = %v, want none", names)
			}
		})
	}
}

func locksOnce(t *testing.T, m FS) {
	t.Helper()
	lock, err := m.Lock("lock")
	must(t, err)
	if _, err := m.Lock("lock"); !errors.Is(err, ErrLocked) {
		t.Errorf("the second Lock() = %v, want %v", err, ErrLocked)
	}
	must(t, lock.Close())
	lock, err = m.Lock("lock")
	must(t, err)
	must(t, lock.Close())
}

// A crash leaves of each unsynced sector any version since the last sync, and
// all of them occur.
func TestCrashLeavesAnyVersionOfASector(t *testing.T) {
	sector := func(b byte) []byte { return bytes.Repeat([]byte{b}, sectorSize) }
	seen := map[[2]byte]bool{}
	for seed := range uint64(200) {
		m := NewMemory()
		f := create(t, m, "f")
		must(t, m.Sync())
		write(t, f, 0, slices.Concat(sector('a'), sector('a')))
		must(t, f.Sync())
		write(t, f, 0, slices.Concat(sector('b'), sector('b')))
		write(t, f, 0, slices.Concat(sector('c'), sector('c')))
		b := m.Crash(Something, rand.New(rand.NewPCG(seed, 0))).Bytes("f")
		for i := range 2 {
			if s := b[i*sectorSize:][:sectorSize]; !bytes.Equal(s, sector(s[0])) {
				t.Fatalf("sector %d is torn within", i)
			}
		}
		seen[[2]byte{b[0], b[sectorSize]}] = true
	}
	if len(seen) != 9 {
		t.Errorf("%d combinations, want 9: %v", len(seen), seen)
	}
}

// Names are kept or lost one by one, and only until the directory is synced.
func TestCrashLosesNames(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		m := NewMemory()
		must(t, create(t, m, "old").Close())
		must(t, m.Sync())
		must(t, create(t, m, "new").Close())
		must(t, m.Rename("old", "renamed"))
		names, err := m.Crash(Something, rand.New(rand.NewPCG(seed, 0))).Names()
		must(t, err)
		seen[filepath.Join(names...)] = true
	}
	for _, want := range []string{"old", "renamed", "new/old", "new/renamed"} {
		if !seen[filepath.FromSlash(want)] {
			t.Errorf("never seen: %s", want)
		}
	}
	if len(seen) != 4 {
		t.Errorf("seen %v, want four combinations", seen)
	}
}

// After a failed sync another one that succeeds does not bring the data back;
// writing it again does.
func TestFailedSyncLosesForGood(t *testing.T) {
	m := NewMemory()
	f := create(t, m, "f")
	must(t, m.Sync())
	write(t, f, 0, []byte("one"))
	must(t, f.Sync())
	write(t, f, 0, []byte("two"))
	m.SetHook(FailAt(m.Ops()+1, syscall.EIO))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync() = %v, want %v", err, syscall.EIO)
	}
	must(t, f.Sync())
	if got := string(m.Durable().Bytes("f")); got != "one" {
		t.Errorf("durable is %q, want %q", got, "one")
	}
	write(t, f, 0, []byte("two"))
	must(t, f.Sync())
	if got := string(m.Durable().Bytes("f")); got != "two" {
		t.Errorf("durable is %q, want %q", got, "two")
	}
}

func TestShortWriteAndFullDisk(t *testing.T) {
	m := NewMemory()
	f := create(t, m, "f")
	m.SetCapacity(10)
	if n, err := f.WriteAt(make([]byte, 16), 0); n != 10 || !IsNoSpace(err) {
		t.Errorf("WriteAt() beyond the capacity = %d, %v, want 10 and no space", n, err)
	}
	if n, err := f.WriteAt(make([]byte, 10), 0); n != 10 || err != nil {
		t.Errorf("WriteAt() over what is there = %d, %v, want 10", n, err)
	}
	m.SetHook(FailAt(m.Ops()+1, syscall.ENOSPC))
	if n, err := f.WriteAt(make([]byte, 8), 0); n != 4 || !IsNoSpace(err) {
		t.Errorf("WriteAt() that fails = %d, %v, want 4 and no space", n, err)
	}
}

// After a crash nothing works, and the same seed leaves the same.
func TestCrashEndsEverything(t *testing.T) {
	left := func() *Memory {
		m := NewMemory()
		f := create(t, m, "f")
		for i := range int64(50) {
			write(t, f, i*100, bytes.Repeat([]byte{byte(i)}, 300))
		}
		m.SetHook(CrashAt(m.Ops() + 1))
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrCrashed) {
			t.Errorf("WriteAt() = %v, want %v", err, ErrCrashed)
		}
		if err := m.Sync(); !errors.Is(err, ErrCrashed) {
			t.Errorf("Sync() after the crash = %v, want %v", err, ErrCrashed)
		}
		if _, err := m.Names(); !errors.Is(err, ErrCrashed) {
			t.Errorf("Names() after the crash = %v, want %v", err, ErrCrashed)
		}
		return m.Crash(Something, rand.New(rand.NewPCG(11, 0)))
	}
	if a, b := left(), left(); !bytes.Equal(a.Bytes("f"), b.Bytes("f")) {
		t.Error("the same seed has left different files")
	}
}

// Only the process ends: the next one sees everything, and a power failure still
// takes what was not synced, or what a sync has given up.
func TestEndProcessKeepsWhatIsNotDurable(t *testing.T) {
	m := NewMemory()
	_, err := m.Lock("lock")
	must(t, err)
	f := create(t, m, "old")
	write(t, f, 0, []byte("one"))
	must(t, f.Sync())
	must(t, m.Sync())
	write(t, f, 0, []byte("two"))
	m.SetHook(FailAt(m.Ops()+1, syscall.EIO))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync() = %v, want %v", err, syscall.EIO)
	}
	write(t, f, 600, []byte("three"))
	must(t, m.Rename("old", "new"))

	next := m.EndProcess()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrCrashed) {
		t.Errorf("WriteAt() of a process that has ended = %v, want %v", err, ErrCrashed)
	}
	lock, err := next.Lock("lock")
	must(t, err)
	must(t, lock.Close())
	if got := next.Bytes("new"); !bytes.HasPrefix(got, []byte("two")) || len(got) != 605 {
		t.Errorf("the next process reads %q", got)
	}
	if got := next.Durable().Bytes("old"); string(got) != "one" {
		t.Errorf("durable is %q, want %q", got, "one")
	}
	f, err = next.Open("new")
	must(t, err)
	must(t, f.Sync())
	must(t, next.Sync())
	if got := next.Durable().Bytes("new"); !bytes.HasPrefix(got, []byte("one")) || len(got) != 605 {
		t.Errorf("after a second sync, durable is %q: it must not make up for the failed one", got)
	}
}
