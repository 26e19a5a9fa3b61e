package restore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
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
		}, nil, "index 9223372036854775807 of term"},
		{"a term without successors", func(r *Config) {
			r.File = writeSnapshotFile(t, withValue(t, bare, "meta", "term", "\x7f\xff\xff\xff\xff\xff\xff\xff"))
		}, nil, "of term 9223372036854775807 leaves too few"},
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
		if err != nil || got.Imported == nil || fmt.Sprint(got.Revision, got.Hash.Hash) != strings.Join(lines[len(lines)-2:], " ") || got.Keys != 7 || got.TTLLeases != 2 {
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
