package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

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
	for r.Trimming() {
		runtime.Gosched()
	}
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

// What a defragmentation that failed has left is in nobody's way: it would take the
// room that the next one needs.
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
	// A directory in the place of the file is as good as any failure.
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
	if _, err := r.Checkpoint(func(uint64) error {
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
