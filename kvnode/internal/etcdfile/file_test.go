package etcdfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// dump formats all versions.
func dump(f *File) (all []string, err error) {
	err = f.Versions(func(sub uint32, kv *mvccpb.KeyValue) error {
		all = append(all, fmt.Sprintf("%d.%d %s=%s create %d version %d lease %d", kv.GetModRevision(), sub, kv.GetKey(), kv.GetValue(), kv.GetCreateRevision(), kv.GetVersion(), kv.GetLease()))
		return nil
	})
	return all, err
}

// Versions are in the order of writes. A tombstone has a key and a revision only.
func TestVersions(t *testing.T) {
	c := fresh()
	c["key"] = map[string]string{
		at(9, 0):         record("a", "1", 9, 9, 1, 0),
		at(10, 0):        record("a", "2", 9, 10, 2, 5),
		at(10, 1):        record("b", "", 10, 10, 1, 0),
		tombstone(11, 0): message(&mvccpb.KeyValue{Key: []byte("a")}),
		at(300, 0):       record("a", "3", 300, 300, 1, 0),
		at(1300, 0):      "", // etcdutl snapshot restore --bump-revision 1000
	}
	f := c.open(t)
	got, err := dump(f)
	want := []string{
		"9.0 a=1 create 9 version 1 lease 0", "10.0 a=2 create 9 version 2 lease 5", "10.1 b= create 10 version 1 lease 0",
		"11.0 a= create 0 version 0 lease 0", "300.0 a=3 create 300 version 1 lease 0",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Versions() = %q, %v, want %q", got, err, want)
	}
	if f.Revision != 1300 || f.Compacted != -1 || f.Index != 7 || f.Term != 3 {
		t.Errorf("the file is %+v, want revision 1300, none compacted, index 7 and term 3", f)
	}
	s, err := f.Summary()
	if err != nil || s.Keys != 2 || s.Versions != 5 || s.Revision != 1300 || s.StorageVersion != "3.6.0" || s.Refused != nil {
		t.Errorf("Summary() = %+v, %v, want 2 keys in 5 versions, at revision 1300", s, err)
	}
}

// A file may be larger than memory, so it is read twice for all calls together. A pass that was
// stopped leaves no hash.
func TestAFileIsReadTwice(t *testing.T) {
	for _, path := range saved(t) {
		f := openSaved(t, path)
		want, err := f.Summary()
		if err != nil || f.passes != 2 {
			t.Errorf("Summary() of %s reads it %d times, %v, want twice", path, f.passes, err)
		}
		f = openSaved(t, path)
		if err := f.Versions(func(uint32, *mvccpb.KeyValue) error { return errUnwanted }); !errors.Is(err, errUnwanted) {
			t.Errorf("Versions() = %v, want what its caller says", err)
		}
		if _, err := dump(f); err != nil || f.passes != 4 {
			t.Errorf("Versions() of %s, again, has read it %d times, %v, want four times", path, f.passes, err)
		}
		got, err := f.Summary()
		if err != nil || f.passes != 4 || got != want {
			t.Errorf("Summary() after Versions() = %+v, %v, in %d passes, want %+v in four", got, err, f.passes, want)
		}
	}
}

var errUnwanted = errors.New("this is not wanted")

func openSaved(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// A compaction that was started counts, and the newest revision is never below the compacted one.
func TestMeta(t *testing.T) {
	for _, tc := range []struct {
		name                     string
		meta                     map[string]string
		revision, compacted      int64
		index, term              uint64
		storageVersion, newestAt string
	}{
		{name: "an etcd that has written nothing", meta: map[string]string{}, revision: 1, compacted: -1, index: 1, term: 1},
		{name: "before etcd 3.5", meta: map[string]string{"consistent_index": number(9)}, revision: 1, compacted: -1, index: 9, term: 1},
		{name: "index and term", meta: map[string]string{"consistent_index": number(9), "term": number(4)}, revision: 1, compacted: -1, index: 9, term: 4},
		{name: "compacted", meta: map[string]string{"finishedCompactRev": at(3, 0), "scheduledCompactRev": at(3, 0)}, newestAt: at(5, 0), revision: 5, compacted: 3, index: 1, term: 1},
		{name: "compaction begun", meta: map[string]string{"finishedCompactRev": at(3, 0), "scheduledCompactRev": at(4, 0)}, newestAt: at(5, 0), revision: 5, compacted: 4, index: 1, term: 1},
		{name: "the newest was a tombstone, and is gone", meta: map[string]string{"scheduledCompactRev": at(6, 0)}, newestAt: at(5, 0), revision: 6, compacted: 6, index: 1, term: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fresh()
			c["meta"] = tc.meta
			if tc.newestAt != "" {
				c["key"][tc.newestAt] = record("k", "v", 2, 5, 3, 0)
			}
			f := c.open(t)
			if f.Revision != tc.revision || f.Compacted != tc.compacted || f.Index != tc.index || f.Term != tc.term {
				t.Errorf("Open() = %+v, want %+v", f, tc)
			}
		})
	}
}

// A key of a lease that does not exist is attached to none. Otherwise the next lease with that ID
// would delete the key, but only on members that have been restarted. Older versions keep their
// lease.
func TestAKeyOfNoTTLLease(t *testing.T) {
	c := fresh()
	c["lease"] = map[string]string{number(7): granted(7, 60, 0)}
	c["key"] = map[string]string{
		at(2, 0):        record("a", "1", 2, 2, 1, 5),
		at(3, 0):        record("a", "2", 2, 3, 2, 5),
		at(4, 0):        record("b", "1", 4, 4, 1, 5),
		at(4, 1):        record("c", "1", 4, 4, 1, 5),
		at(4, 2):        record("d", "1", 4, 4, 1, 7),
		at(5, 0):        record("b", "2", 4, 5, 2, 7),
		tombstone(6, 0): message(&mvccpb.KeyValue{Key: []byte("c")}),
	}
	f := c.open(t)
	var got []string
	err := f.Versions(func(sub uint32, kv *mvccpb.KeyValue) error {
		got = append(got, fmt.Sprintf("%s%d lease %d", kv.GetKey(), kv.GetVersion(), kv.GetLease()))
		return nil
	})
	want := []string{"a1 lease 5", "a2 lease 0", "b1 lease 5", "c1 lease 5", "d1 lease 7", "b2 lease 7", "c0 lease 0"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Versions() = %q, %v, want %q", got, err, want)
	}
	if s, err := f.Summary(); err != nil || s.Detached != 1 {
		t.Errorf("Summary() = %+v, %v, want 1 key detached", s, err)
	}
}

// Files of other programs are recognised.
func TestForeign(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a store":    contents{"key": {}, "meta": {"kvnode-format": "1"}}.write(t),
		"no keys":    contents{"meta": {"consistent_index": number(1)}}.write(t),
		"no meta":    contents{"key": {}}.write(t),
		"a folder":   t.TempDir(),
		"empty file": empty,
	} {
		if f, err := Open(path); !errors.Is(err, store.ErrForeign) {
			t.Errorf("Open(%s) = %v, %v, want ErrForeign", name, f, err)
		}
		if Is(path) {
			t.Errorf("Is(%s) = true, want false", name)
		}
	}
}

// Inconsistent records are damage.
func TestDamage(t *testing.T) {
	whole := record("k", "v", 2, 3, 2, 0)
	for name, damage := range map[string]func(c contents){
		"a key that is no revision": func(c contents) { c["key"]["k"] = whole },
		"another separator":         func(c contents) { c["key"][at(3, 0)[:8]+"-"+at(3, 0)[9:]] = whole },
		"another mark":              func(c contents) { c["key"][at(3, 0)+"x"] = whole },
		"a negative revision":       func(c contents) { c["key"][at(-3, 0)] = whole },
		"revision 0":                func(c contents) { c["key"][at(0, 0)] = record("k", "v", 0, 0, 1, 0) },
		"a revision twice": func(c contents) {
			c["key"][at(3, 0)], c["key"][tombstone(3, 0)] = whole, message(&mvccpb.KeyValue{Key: []byte("k")})
		},
		"no message":                 func(c contents) { c["key"][at(3, 0)] = "\xff" },
		"no key":                     func(c contents) { c["key"][at(3, 0)] = record("", "v", 2, 3, 2, 0) },
		"a tombstone of no key":      func(c contents) { c["key"][tombstone(3, 0)] = "" },
		"another mod revision":       func(c contents) { c["key"][at(3, 0)] = record("k", "v", 2, 4, 2, 0) },
		"made later":                 func(c contents) { c["key"][at(3, 0)] = record("k", "v", 4, 3, 2, 0) },
		"never made":                 func(c contents) { c["key"][at(3, 0)] = record("k", "v", 0, 3, 2, 0) },
		"version 0":                  func(c contents) { c["key"][at(3, 0)] = record("k", "v", 2, 3, 0, 0) },
		"an index of 7 bytes":        func(c contents) { c["meta"]["consistent_index"] = "1234567" },
		"the last index":             func(c contents) { c["meta"]["consistent_index"] = number(1<<64 - 1) },
		"a compaction of 3 bytes":    func(c contents) { c["meta"]["scheduledCompactRev"] = "123" },
		"a TTL lease of another ID":  func(c contents) { c["lease"][number(7)] = granted(8, 60, 0) },
		"a TTL lease of ID 0":        func(c contents) { c["lease"][number(0)] = granted(0, 60, 0) },
		"a TTL that is too long":     func(c contents) { c["lease"][number(7)] = granted(7, store.MaxTTL+1, 0) },
		"a TTL lease with a text":    func(c contents) { c["lease"][number(7)] = granted(7, 60, 0) + "\x22\x01x" },
		"a TTL lease that is cut":    func(c contents) { c["lease"][number(7)] = granted(7, 60, 0) + "\x18" },
		"a TTL lease with a field 4": func(c contents) { c["lease"][number(7)] = granted(7, 60, 0) + "\x20\x01" },
	} {
		t.Run(name, func(t *testing.T) {
			c := fresh()
			damage(c)
			f, err := Open(c.write(t))
			if err == nil {
				_, err = f.Summary()
				_ = f.Close()
			}
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("Summary() = %v, want ErrDamaged", err)
			}
		})
	}
}

// TTL leases have their full TTLs.
func TestTTLLeases(t *testing.T) {
	c := fresh()
	c["lease"] = map[string]string{number(7): granted(7, 3600, 12), number(1 << 62): granted(1<<62, store.MaxTTL, 0), number(9): granted(9, 0, 0)}
	got, err := c.open(t).TTLLeases()
	want := []store.TTLLease{{ID: 7, TTL: 3600}, {ID: 9, TTL: 1}, {ID: 1 << 62, TTL: store.MaxTTL}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("TTLLeases() = %v, %v, want %v", got, err, want)
	}
	delete(c, "lease")
	if got, err := c.open(t).TTLLeases(); err != nil || len(got) != 0 {
		t.Errorf("TTLLeases() without the bucket = %v, %v, want none", got, err)
	}
}

// saved returns the snapshots of real servers (testdata/make).
func saved(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.db")
	if err != nil || len(files) < 3 {
		tb.Fatalf("there are the snapshots %q, %v, want those of three versions", files, err)
	}
	return files
}

// Hashes equal those of the etcd that saved the snapshot.
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

// After an interrupted compaction, compacted versions do not count. Nor do tombstones of the
// compacted revision, which some versions of etcd keep.
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
