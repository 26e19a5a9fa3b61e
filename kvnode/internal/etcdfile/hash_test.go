package etcdfile

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// saved returns the snapshots of real servers (testdata/make).
func saved(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.db")
	if err != nil || len(files) < 3 {
		tb.Fatalf("there are the snapshots %q, %v, want those of three versions", files, err)
	}
	return files
}

// The hashes of a snapshot are those that the etcd gave which saved it.
func TestHashKVIsEtcds(t *testing.T) {
	for _, path := range saved(t) {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Lines(readFile(t, strings.TrimSuffix(path, ".db")+".hashes"))
		n := 0
		for line := range lines {
			var rev int64
			var want uint32
			if _, err := fmt.Sscan(string(line), &rev, &want); err != nil {
				t.Fatal(err)
			}
			if got, err := f.HashKV(rev); err != nil || got != want {
				t.Errorf("HashKV(%d) of %s = %d, %v, want %d", rev, path, got, err, want)
			}
			n++
		}
		if n < 5 {
			t.Errorf("%d hashes of %s, want some", n, path)
		}
		for _, rev := range []int64{f.Compacted - 1, f.Revision + 1} {
			if _, err := f.HashKV(rev); err == nil {
				t.Errorf("HashKV(%d) of %s, which has %d to %d, is no error", rev, path, f.Compacted, f.Revision)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A compaction that etcd has begun, and not ended, leaves versions that count for nothing,
// and so do tombstones of the compacted revision, which not all versions of etcd keep.
func TestHashKVLeavesOutWhatIsCompacted(t *testing.T) {
	c := fresh()
	c["meta"]["finishedCompactRev"], c["meta"]["scheduledCompactRev"] = at(5, 0), at(5, 0)
	c["key"] = map[string]string{at(4, 0): record("a", "2", 3, 4, 2, 0), at(6, 0): record("b", "1", 6, 6, 1, 0)}
	want, err := c.open(t).HashKV(6)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"a version that was replaced":           func() { c["key"][at(3, 0)] = record("a", "1", 3, 3, 1, 0) },
		"a tombstone of the compacted revision": func() { c["key"][tombstone(5, 0)] = "\x0a\x01c" },
		"a tombstone below":                     func() { c["key"][tombstone(2, 0)] = "\x0a\x01d" },
	} {
		change()
		if got, err := c.open(t).HashKV(6); err != nil || got != want {
			t.Errorf("HashKV(6) with %s = %d, %v, want %d", name, got, err, want)
		}
	}
	c["key"][at(7, 0)] = record("c", "1", 7, 7, 1, 0)
	if got, err := c.open(t).HashKV(7); err != nil || got == want {
		t.Errorf("HashKV(7) with another key = %d, %v, want another one", got, err)
	}
}
