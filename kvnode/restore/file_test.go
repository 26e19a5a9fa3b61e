package restore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// etcdSnapshots returns the snapshots of real servers, by version.
func etcdSnapshots(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../internal/etcdfile/testdata/*.db")
	if err != nil || len(files) < 3 {
		t.Fatalf("there are the snapshots %q, %v, want those of three versions", files, err)
	}
	all := make(map[string]string)
	for _, path := range files {
		all[strings.TrimSuffix(filepath.Base(path), ".db")] = path
	}
	return all
}

// The error names what is wrong with a snapshot of etcd, and the restore leaves nothing behind.
func TestRestoreRefusesOfEtcd(t *testing.T) {
	whole := etcdSnapshots(t)["3.6"]
	data := readFile(t, whole)
	flipped := bytes.Clone(data)
	flipped[len(data)/2] ^= 1
	bare := data[:len(data)-32]
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		set  func(*Config)
		is   error
		want string // part of the error
	}{
		{"a bit flipped", func(r *Config) { r.File = writeFile(t, flipped) }, ErrDamaged, "SHA-256"},
		{"cut off", func(r *Config) { r.File = writeFile(t, data[:len(data)-4096]) }, ErrDamaged, "cut off"},
		{"without checksum", func(r *Config) { r.File = writeFile(t, bare) }, ErrDamaged, "member/snap/db of an etcd member"},
		{"a user", func(r *Config) { r.File = writeSnapshotFile(t, withUser(t, bare)) }, ErrRefused, `users ["root"]`},
		{"damage to a record", func(r *Config) { r.File = writeSnapshotFile(t, withKey(t, bare, "key", "k")) }, ErrDamaged, "no revision"},
		{"damage to a TTL lease", func(r *Config) { r.File = writeSnapshotFile(t, withKey(t, bare, "lease", "1")) }, ErrDamaged, "TTL lease"},
		{"an index without successors", func(r *Config) {
			r.File = writeSnapshotFile(t, withValue(t, bare, "meta", "consistent_index", "\x7f\xff\xff\xff\xff\xff\xff\xff"))
		}, nil, "index 9223372036854775807 and term"},
		{"a term without successors", func(r *Config) {
			r.File = writeSnapshotFile(t, withValue(t, bare, "meta", "term", "\x7f\xff\xff\xff\xff\xff\xff\xff"))
		}, nil, "and term 9223372036854775807, and a new cluster"},
		{"the quota", func(r *Config) { r.File, r.QuotaBytes = whole, 20000 }, nil, "must be below the quota, 20000"},
		{"a data directory", func(r *Config) { r.File = folder }, ErrForeign, "the data of an etcd member"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := restoreOf(t, "")
			test.set(&cfg)
			_, err := Snapshot(cfg)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Snapshot() = %v, want %v with %q", err, test.is, test.want)
			}
			if _, err := os.Stat(cfg.DataDir); err == nil {
				t.Error("the refusal has left a directory behind")
			}
		})
	}
}

func withUser(t *testing.T, db []byte) []byte { return withKey(t, db, "authUsers", "root") }

// withKey adds something to one of etcd's buckets.
func withKey(t *testing.T, data []byte, bucket, key string) []byte {
	t.Helper()
	return withValue(t, data, bucket, key, "")
}

// withValue sets what a key of one of etcd's buckets has.
func withValue(t *testing.T, data []byte, bucket, key, value string) []byte {
	t.Helper()
	path := writeFile(t, data)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return readFile(t, path)
}

// SkipHashCheck accepts a database that was copied from a stopped etcd member. The database of an
// etcd in which nothing was written makes a cluster without keys.
func TestRestoreOfABareEtcdDatabase(t *testing.T) {
	whole := readFile(t, etcdSnapshots(t)["3.7"])
	for name, test := range map[string]struct {
		data     []byte
		revision int64
	}{
		"copied": {whole[:len(whole)-32], 19},
		"empty":  {etcdDatabase(t), 1},
	} {
		cfg := restoreOf(t, writeFile(t, test.data))
		cfg.SkipHashCheck = true
		r, err := Snapshot(cfg)
		if err != nil || r.Checkpoint.Revision != test.revision || r.Imported == nil {
			t.Errorf("Snapshot(%s) = %+v, %v, want revision %d", name, r, err, test.revision)
		}
	}
}

// A restore does not read a database that a process has open for writing, and says why.
func TestRestoreOfAFileInUse(t *testing.T) {
	path := writeFile(t, etcdDatabase(t))
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	cfg := restoreOf(t, path)
	cfg.SkipHashCheck = true
	_, err = Snapshot(cfg)
	if err == nil || errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Snapshot() = %v, want that another process has it open", err)
	}
	if _, err := os.Stat(cfg.DataDir); err == nil {
		t.Error("the refusal has left a directory behind")
	}
}

// Inspect returns etcd's own hash for a snapshot of etcd.
func TestInspectEtcdSnapshot(t *testing.T) {
	for version, path := range etcdSnapshots(t) {
		got, err := Inspect(path)
		lines := strings.Fields(string(readFile(t, strings.TrimSuffix(path, ".db")+".hashes")))
		if err != nil || got.Etcd == nil || fmt.Sprint(got.Revision, got.Hash.Hash) != strings.Join(lines[len(lines)-2:], " ") || got.Keys != 7 || got.TTLLeases != 2 {
			t.Errorf("Inspect(%s) = %+v, %v, want %v, 7 keys and 2 TTL leases", version, got, err, lines)
		}
	}
}

// The import fails if the file has changed since its checksum was verified.
func TestAnEtcdFileThatChangesIsNotImported(t *testing.T) {
	path := etcdSnapshots(t)["3.7"]
	f, err := openEtcd(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEtcdFile(f, path, make([]byte, 32), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.copyTo(filepath.Join(t.TempDir(), "store.db")); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("copyTo() with another sum = %v, want ErrDamaged", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestInspect(t *testing.T) {
	var data []byte
	var want store.Hash
	withMember(t, func(t *testing.T, m *member) {
		m.put("key")
		data, want = readFile(t, m.saved()), hashOf(t, m.Store())
	})
	file := writeFile(t, data)
	for name, path := range map[string]string{"snapshot": file, "database": writeFile(t, data[:len(data)-32])} {
		got, err := Inspect(path)
		if err != nil || got.Hash != want || got.Keys != 1 || got.Revision != 2 || got.Size != int64(len(readFile(t, path))) {
			t.Errorf("Inspect(%s) = %+v, %v, want one key and %+v", name, got, err, want)
		}
	}
	data[100] ^= 1
	if _, err := Inspect(writeFile(t, data)); !errors.Is(err, ErrDamaged) {
		t.Errorf("Inspect(damaged) = %v, want ErrDamaged", err)
	}
	if _, err := Inspect(writeSnapshotFile(t, otherDatabase(t))); !errors.Is(err, ErrForeign) || errors.Is(err, store.ErrDamaged) {
		t.Errorf("Inspect(another program's) = %v, want ErrForeign", err)
	}
}

// Sizes above 32 bits are counted right.
func TestASnapshotMayBeLarge(t *testing.T) {
	const page, pages = 4096, 3 << 20 // 12 GiB
	head := make([]byte, 2*page)
	for at := boltMetaAt; at < len(head); at += page {
		binary.NativeEndian.PutUint32(head[at:], boltMagic)
		binary.NativeEndian.PutUint32(head[at+8:], page)
		binary.NativeEndian.PutUint64(head[at+40:], pages)
	}
	path := writeFile(t, head)
	for size, lacks := range map[int64]int64{pages*page + 32: 0, pages * page: 0, 1 << 31: pages*page + 32 - 1<<31, pages*page - page: page + 32} {
		if err := os.Truncate(path, size); err != nil { // which takes no room
			t.Skip(err)
		}
		f, got, err := openSnapshotFile(path)
		if lacks == 0 && (err != nil || got != size) || lacks > 0 && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("lacks %d", lacks))) {
			t.Errorf("a file of %d bytes of %d = %d, %v, want that it lacks %d", size, int64(pages*page), got, err, lacks)
		}
		if f != nil {
			_ = f.Close()
		}
	}
}

// The error for a truncated snapshot says so, wherever it ends. A complete one is accepted with or
// without its checksum.
func TestASnapshotThatIsCutOff(t *testing.T) {
	_, data := savedSnapshot(t)
	for _, size := range []int{100, 4096, 8191, 16 << 10, len(data) / 2, len(data) - 4096, len(data) - 33, len(data) - 31, len(data) - 1} {
		file := writeFile(t, data[:size])
		_, err := Inspect(file)
		want := fmt.Sprintf("is cut off: it has %d bytes, and lacks %d", size, len(data)-size)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("Inspect(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
		}
		for _, skip := range []bool{false, true} {
			cfg := restoreOf(t, file)
			cfg.SkipHashCheck = skip
			_, err = Snapshot(cfg)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Snapshot(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
			}
		}
	}
	for _, size := range []int{len(data), len(data) - 32} {
		if _, err := Inspect(writeFile(t, data[:size])); err != nil {
			t.Errorf("Inspect(%d of %d bytes) = %v, want nil", size, len(data), err)
		}
	}
}
