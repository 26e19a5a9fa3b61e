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
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// A snapshot file is a database, padded to a multiple of snapshotAlign, and then its SHA-256
// (see package etcdapi, and etcd's clients).
const (
	snapshotAlign = 512
	// minSnapshot is the size of the smallest bbolt database.
	minSnapshot = 16 << 10
)

var (
	// ErrDamaged means that a snapshot file does not hold what was saved.
	ErrDamaged = errors.New("kvnode: the snapshot's file is damaged")
	// ErrForeign means that a file or directory is of neither kvnode nor etcd.
	ErrForeign = errors.New("kvnode: this is no snapshot, neither of kvnode nor of etcd")
)

// FromEtcd says how to move keys from etcd to kvnode.
const FromEtcd = "run etcd with it, save a snapshot with `etcdctl snapshot save FILE`, and make a data directory of that with " +
	"`kvnode import FILE`, which keeps revisions and TTL leases"

// snapshotFile is a source: a snapshot file of kvnode that was checked, with the checksum that
// it had then.
type snapshotFile struct {
	path string
	sum  []byte
}

func (s *snapshotFile) Close() error { return nil }

// copyTo copies the database out of the file, durably. The file may have changed since the check,
// so the copy must have the same checksum.
func (s *snapshotFile) copyTo(path string) (_ origin, err error) {
	src, size, err := openSnapshotFile(s.path)
	if err != nil {
		return origin{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	body := size
	if size%snapshotAlign == sha256.Size {
		body -= sha256.Size
	}
	hash := sha256.New()
	if err := writeNew(path, io.LimitReader(src, body), hash); err != nil {
		return origin{}, fmt.Errorf("copy %s: %w", s.path, err)
	}
	if got := hash.Sum(nil); !bytes.Equal(got, s.sum) {
		return origin{}, fmt.Errorf("%w: %s has changed while it was read", ErrDamaged, s.path)
	}
	return origin{sum: s.sum}, nil
}

// checkSnapshotFile verifies the checksum at the end of a snapshot file, and returns the checksum
// of the bytes before it. With skip it accepts a file without a checksum, or with a wrong one.
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
		return nil, fmt.Errorf("%w: %s of %d bytes has no checksum at its end: it is cut off, or was not made by snapshot save%s", ErrDamaged, path, size, orItsDirectory(path))
	default:
		return nil, fmt.Errorf("%w: %s has %d bytes, want a multiple of %d and %d more", ErrDamaged, path, size, snapshotAlign, sha256.Size)
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
		return nil, fmt.Errorf("%w: %s has SHA-256 %x, want %x", ErrDamaged, path, sum, want)
	}
	return sum, nil
}

func openSnapshotFile(path string) (f *os.File, size int64, err error) {
	// Stat comes before Open, which would block on a named pipe until it has a writer.
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, 0, fmt.Errorf("open the snapshot: %w", err)
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%w: %s is not a regular file: it is read more than once, so save it to one", ErrForeign, path)
	}
	if f, err = os.Open(path); err != nil {
		return nil, 0, fmt.Errorf("open the snapshot: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.Size() == 0:
		err = fmt.Errorf("%w: %s is empty", ErrDamaged, path)
	case lacking(f, info.Size()) > 0:
		err = fmt.Errorf("%w: %s is cut off: it has %d bytes, and lacks %d at its end", ErrDamaged, path, info.Size(), lacking(f, info.Size()))
	case info.Size() < minSnapshot:
		err = fmt.Errorf("%w: %s has %d bytes, and a snapshot has at least %d", ErrForeign, path, info.Size(), minSnapshot)
	default:
		return f, info.Size(), nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

// orItsDirectory returns the advice for a member's store.db as the end of an error text.
func orItsDirectory(path string) string {
	if advice := AdviseBareStore(path); advice != "" {
		return "; " + advice
	}
	return ""
}

// AdviseBareStore returns what to do with a file that may be copied from a data directory of
// kvnode or etcd: such a file is a checkpoint, and lacks what only the log has. It returns "" for
// all other files.
func AdviseBareStore(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size()%snapshotAlign != 0 {
		return ""
	}
	if etcds, _ := etcdfile.Is(path); etcds { // an error here comes back when the file is read
		return "if it is the member/snap/db of an etcd member, it lacks what stands only in the wal next to it: " + FromEtcd
	}
	dir := filepath.Dir(path)
	if !isDir(memberdir.Dir(dir).Log()) {
		dir = "DATA_DIR"
	}
	return fmt.Sprintf("if it is the %s of a member, it is a checkpoint, and lacks what was written after it, which is in the %s next to it: "+
		"restore the data directory instead, which loses nothing: kvnode snapshot restore %s", memberdir.StateFile, memberdir.LogFolder, dir)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// writeNew writes everything from a reader to a new file, durably, and to sum.
func writeNew(path string, from io.Reader, sum io.Writer) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(f, sum), from)
	return errors.Join(err, f.Sync(), f.Close())
}

// explainForeign wraps the store's errors about files in those of this package.
func explainForeign(err error) error {
	switch {
	case errors.Is(err, store.ErrForeign):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		return err
	}
}
