package restore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// The error names what is wrong with the file, the directory or the options, and the restore leaves
// nothing behind.
func TestRestoreRefuses(t *testing.T) {
	whole, data := savedSnapshot(t)
	members := []memberdir.Member{{Name: "a", PeerURLs: []string{"http://a:2380"}}, {Name: "b", PeerURLs: []string{"http://b:2380"}}}
	flipped := bytes.Clone(data)
	flipped[len(data)/2] ^= 1
	damaged := bytes.Clone(data[:len(data)-sha256.Size])
	damaged[bytes.Index(damaged, []byte("value"))] ^= 1
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		set  func(*Config)
		is   error
		want string // part of the error
	}{
		{"a bit flipped", func(r *Config) { r.File = writeFile(t, flipped) }, ErrDamaged, "SHA-256"},
		{"cut off", func(r *Config) { r.File = writeFile(t, data[:len(data)-1]) }, ErrDamaged, fmt.Sprint(len(data) - 1)},
		{"without checksum", func(r *Config) { r.File = writeFile(t, data[:len(data)-32]) }, ErrDamaged, "no checksum"},
		{"damage under a right checksum", func(r *Config) { r.File = writeSnapshotFile(t, damaged) }, ErrDamaged, ""},
		{"damage that is not looked for", func(r *Config) { r.File, r.SkipHashCheck = writeFile(t, damaged), true }, ErrDamaged, ""},
		{"empty file", func(r *Config) { r.File = writeFile(t, nil) }, ErrDamaged, "is empty"},
		{"text", func(r *Config) { r.File = writeSnapshotFile(t, bytes.Repeat([]byte("text"), 4096)) }, ErrForeign, ""},
		{"of another program", func(r *Config) { r.File = writeSnapshotFile(t, otherDatabase(t)) }, ErrForeign, "neither of kvnode nor of etcd"},
		{"a directory", func(r *Config) { r.File = t.TempDir() }, ErrForeign, "holds no member.json"},
		{"no file", func(r *Config) { r.File = filepath.Join(t.TempDir(), "none") }, os.ErrNotExist, "none"},
		{"directory in use", func(r *Config) { r.DataDir = full }, nil, `it has "a"`},
		{"no directory", func(r *Config) { r.DataDir = "" }, nil, "no data directory"},
		{"not a member", func(r *Config) { r.Name = "c" }, nil, `member "c" is not in the initial cluster`},
		{"elsewhere", func(r *Config) { r.PeerURLs = []string{"http://c:2380"} }, nil, "advertises [http://c:2380]"},
		{"bump alone", func(r *Config) { r.BumpRevision = 1 }, nil, "both are needed"},
		{"mark alone", func(r *Config) { r.MarkCompacted = true }, nil, "both are needed"},
		{"negative bump", func(r *Config) { r.BumpRevision = -1 }, nil, "-1 must not be negative"},
		{"bump too high", func(r *Config) { r.BumpRevision, r.MarkCompacted = 1<<63-1, true }, nil, "cannot raise"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			cfg := Config{File: whole, Name: "a", DataDir: dir, Cluster: members}
			test.set(&cfg)
			_, err := Snapshot(cfg)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Snapshot() = %v, want %v with %q", err, test.is, test.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the refusal has left a directory behind")
			}
		})
	}
	if got := readFile(t, whole); !bytes.Equal(got, data) {
		t.Error("the snapshot's file was changed")
	}
}

// etcdDatabase is of an etcd in which nothing was written.
func etcdDatabase(t *testing.T) []byte { return database(t, "meta", "key", "members") }

func otherDatabase(t *testing.T) []byte { return database(t, "meta", "keys") }

// database returns a bbolt database with these buckets.
func database(t *testing.T, buckets ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), make([]byte, 8))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return readFile(t, path)
}

// DataDir may exist if it is empty, such as a mounted disk.
func TestRestoreIntoAnEmptyDirectory(t *testing.T) {
	file, _ := savedSnapshot(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := restoreOf(t, file)
	cfg.DataDir = dir
	if _, err := Snapshot(cfg); err != nil {
		t.Fatal(err)
	}
	_, err := Snapshot(cfg)
	if err == nil || !strings.Contains(err.Error(), "member.json") && !strings.Contains(err.Error(), "it has") {
		t.Errorf("a second Snapshot() = %v, want the directory refused", err)
	}
	if _, err := os.Stat(filepath.Join(dir, memberdir.IdentityFile)); err != nil {
		t.Errorf("the refusal has cost the first one its identity: %v", err)
	}
}

// A directory that an interrupted restore left is refused, and the error says what to do.
func TestWhatARestoreHasLeftIsRefused(t *testing.T) {
	file, _ := savedSnapshot(t)
	cfg := restoreOf(t, file)
	if err := errors.Join(os.MkdirAll(cfg.DataDir, 0o700), os.WriteFile(cfg.dir().Path(memberdir.StateFile), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := Snapshot(cfg)
	if err == nil || !strings.Contains(err.Error(), "delete the directory and retry") {
		t.Errorf("Snapshot() into what one has left = %v, want what to do", err)
	}
}

// A restore that fails keeps the files that it did not make, such as the server's own certificates.
func TestARestoreThatFailsRemovesWhatItMade(t *testing.T) {
	file, _ := savedSnapshot(t)
	cfg := restoreOf(t, file)
	cfg.BumpRevision, cfg.MarkCompacted = 1<<63-1, true
	kept := filepath.Join(cfg.DataDir, "fixtures")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Snapshot(cfg); err == nil {
		t.Fatal("Snapshot() with too high a revision = nil")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the restore has removed what it did not make: %v", err)
	}
	if err := cfg.dir().CheckEmpty(); err != nil {
		t.Errorf("the restore has left something behind: %v", err)
	}
}

// The copy fails if the file has changed since its checksum was verified.
func TestASnapshotFileThatChangesIsNotRestored(t *testing.T) {
	path, _ := savedSnapshot(t)
	src := &snapshotFile{path, make([]byte, sha256.Size)}
	if _, err := src.copyTo(filepath.Join(t.TempDir(), "store.db")); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("copyTo() with another checksum = %v, want ErrDamaged", err)
	}
}

// No term is above the largest signed 64-bit number, as which most clients keep terms.
func TestRaisedTermsHaveALimit(t *testing.T) {
	file, _ := savedSnapshot(t)
	for bump, want := range map[uint64]bool{math.MaxInt64 - 2: true, math.MaxInt64 - 1: false, math.MaxUint64: false} {
		cfg := restoreOf(t, file)
		cfg.BumpTerm = bump
		got, err := Snapshot(cfg)
		if (err == nil) != want {
			t.Errorf("Snapshot() of term 2 with bump %d = %+v, %v, want success %v", bump, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint(bump)) {
			t.Errorf("Snapshot() with bump %d = %v, want the number", bump, err)
		}
	}
}

// A snapshot without the term of its newest entry is damaged: the new cluster's first term would
// be unknown.
func TestASnapshotWithoutATermIsRefused(t *testing.T) {
	if got, err := firstTerm(store.Checkpoint{Index: 5}, 0, 7); !errors.Is(err, ErrDamaged) {
		t.Errorf("firstTerm() of no term = %d, %v, want ErrDamaged", got, err)
	}
	if got, err := firstTerm(store.Checkpoint{Index: 5, Term: 1}, 0, 7); got != 8 || err != nil {
		t.Errorf("firstTerm() of term 1 by 7 = %d, %v, want 8", got, err)
	}
	if got, err := firstTerm(store.Checkpoint{Index: 5, Term: 1}, 3, 7); got != 10 || err != nil {
		t.Errorf("firstTerm() of term 1 by 7, after a vote in term 3, = %d, %v, want 10", got, err)
	}
}
