package restore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/internal/etcdfile"
	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
)

// A snapshot's file is a database, padded to a multiple of snapshotAlign, and
// then its SHA-256 (see package etcdapi, and etcd's clients).
const (
	snapshotAlign = 512
	// minSnapshot is what the smallest of bbolt's databases has.
	minSnapshot = 16 << 10
)

var (
	// ErrSnapshotDamaged means that a snapshot's file does not hold what was sent.
	ErrSnapshotDamaged = errors.New("kvnode: the snapshot's file is damaged")
	// ErrSnapshotForeign means that a file is neither a snapshot of kvnode nor one of etcd.
	ErrSnapshotForeign = errors.New("kvnode: this is no snapshot, neither of kvnode nor of etcd")
)

// FromEtcd is how keys get from etcd to kvnode.
const FromEtcd = "run etcd with it, save a snapshot with `etcdctl snapshot save FILE`, and make a data directory of that with " +
	"`kvnode import FILE`, which keeps revisions and TTL leases"

// checkSnapshotFile verifies the checksum at the end of the file path, and returns
// that of everything before.
func checkSnapshotFile(path string, skip bool) (sum []byte, err error) {
	f, size, err := openSnapshotFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	body := size - size%snapshotAlign
	switch extra := size % snapshotAlign; {
	case extra == sha256.Size:
	case skip:
		body = size // a database that was copied from a data directory
	case extra == 0:
		return nil, fmt.Errorf("%w: %s of %d bytes has no checksum at its end: it is cut off, or was not made by snapshot save%s", ErrSnapshotDamaged, path, size, orItsDirectory(path))
	default:
		return nil, fmt.Errorf("%w: %s has %d bytes, want a multiple of %d and %d more", ErrSnapshotDamaged, path, size, snapshotAlign, sha256.Size)
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, f, body); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	sum = hash.Sum(nil)
	want, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !skip && !bytes.Equal(sum, want) {
		return nil, fmt.Errorf("%w: %s has SHA-256 %x, want %x", ErrSnapshotDamaged, path, sum, want)
	}
	return sum, nil
}

func openSnapshotFile(path string) (f *os.File, size int64, err error) {
	// Before it is opened: that would wait for who writes to a named pipe.
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, 0, fmt.Errorf("open the snapshot: %w", err)
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%w: %s is not a regular file: it is read more than once, so save it to one", ErrSnapshotForeign, path)
	}
	if f, err = os.Open(path); err != nil {
		return nil, 0, fmt.Errorf("open the snapshot: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size() == 0:
		err = fmt.Errorf("%w: %s is empty", ErrSnapshotDamaged, path)
	case lacking(f, info.Size()) > 0:
		err = fmt.Errorf("%w: %s is cut off: it has %d bytes, and lacks %d at its end", ErrSnapshotDamaged, path, info.Size(), lacking(f, info.Size()))
	case info.Size() < minSnapshot:
		err = fmt.Errorf("%w: %s has %d bytes, and none has less than %d", ErrSnapshotForeign, path, info.Size(), minSnapshot)
	default:
		return f, info.Size(), nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

// orItsDirectory is the better way for who has a member's store.db.
func orItsDirectory(path string) string {
	if advice := AdviseBareStore(path); advice != "" {
		return "; " + advice
	}
	return ""
}

// AdviseBareStore says what a file lacks that is a member's checkpoint by itself, as
// one is that was copied from a data directory, of kvnode or etcd. It returns "" for any other.
func AdviseBareStore(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size()%snapshotAlign != 0 {
		return ""
	}
	if etcds, _ := etcdfile.Is(path); etcds { // whoever reads it says what is wrong
		return "if it is the member/snap/db of an etcd member, it lacks what stands only in the wal next to it: " + FromEtcd
	}
	dir := filepath.Dir(path)
	if !isDir(memberdir.Dir(dir).Log()) {
		dir = "DATA_DIR"
	}
	return fmt.Sprintf("if it is the %s of a member, it is a checkpoint, and lacks what was written after it, which is in the %s next to it: "+
		"restore the data directory instead, which loses nothing: kvnode snapshot restore %s", memberdir.StateFile, memberdir.LogFolder, dir)
}

// explainDir says why a directory is no member's.
func explainDir(dir memberdir.Dir) error {
	if isDir(dir.Path("member")) {
		return fmt.Errorf("%w, but the data of an etcd member: %s", ErrSnapshotForeign, FromEtcd)
	}
	return fmt.Errorf("%w: it holds no %s, so it is no data directory of kvnode's, or not a whole one", ErrSnapshotForeign, memberdir.IdentityFile)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// snapshotCopy is a snapshot's file that was checked, and the sum that it had.
type snapshotCopy struct {
	path string
	sum  []byte
}

func (s *snapshotCopy) copyTo(path string) (origin, error) {
	return origin{sum: s.sum}, copySnapshotFile(s.path, path, s.sum)
}

func (s *snapshotCopy) Close() error { return nil }

// copySnapshotFile copies the database out of the file from, durably. The copy
// must have that sum: the file may have changed since it was checked.
func copySnapshotFile(from, to string, sum []byte) (err error) {
	src, size, err := openSnapshotFile(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	body := size
	if size%snapshotAlign == sha256.Size {
		body -= sha256.Size
	}
	hash := sha256.New()
	if err := writeNew(to, io.LimitReader(src, body), hash); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if got := hash.Sum(nil); !bytes.Equal(got, sum) {
		return fmt.Errorf("%w: %s has changed while it was read", ErrSnapshotDamaged, from)
	}
	return nil
}

// writeNew makes a durable file of what it reads.
func writeNew(path string, from io.Reader, sum io.Writer) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(f, sum), from)
	return errors.Join(err, f.Sync(), f.Close())
}

// SnapshotInfo describes a snapshot's file.
type SnapshotInfo struct {
	store.Summary
	// Size is that of the file.
	Size int64
	// Replayed is of a data directory, nil for a file.
	Replayed *Replayed
	// Imported is of a file of etcd's: Hash is then etcd's hash, not kvnode's.
	Imported *Imported
}

// InspectSnapshot reads all of a snapshot's file, checks it and changes nothing.
// A database that was copied from a data directory of a member that has stopped
// will do, and so will all of the directory, of which the log is replayed.
func InspectSnapshot(path string) (SnapshotInfo, error) {
	if isDir(path) {
		return inspectDir(path)
	}
	f, size, err := openSnapshotFile(path)
	if err != nil {
		return SnapshotInfo{}, err
	}
	if err := f.Close(); err != nil {
		return SnapshotInfo{}, err
	}
	if _, err := checkSnapshotFile(path, size%snapshotAlign == 0); err != nil {
		return SnapshotInfo{}, err
	}
	etcds, err := openEtcd(path)
	if err != nil {
		return SnapshotInfo{}, err
	}
	if etcds != nil {
		s, err := etcds.Summary()
		return SnapshotInfo{Summary: s.Summary, Size: size, Imported: &s}, errors.Join(explainForeign(err), etcds.Close())
	}
	s, err := boltdb.Inspect(path)
	return SnapshotInfo{Summary: s, Size: size}, explainForeign(err)
}

// explainForeign says it in this package's terms.
func explainForeign(err error) error {
	switch {
	case errors.Is(err, store.ErrForeign):
		return fmt.Errorf("%w: %w", ErrSnapshotForeign, err)
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrSnapshotDamaged, err)
	default:
		return err
	}
}
