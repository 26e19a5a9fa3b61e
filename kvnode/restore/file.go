package restore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/internal/etcdfile"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// A snapshot file is a database, padded to a multiple of snapshotAlign, and then its SHA-256
// (see package etcdapi, and etcd's clients).
const (
	snapshotAlign = 512
	// minSnapshot is the size of the smallest bbolt database.
	minSnapshot = 16 << 10
)

var (
	// ErrDamaged means that a source does not hold what was written.
	ErrDamaged = errors.New("kvnode: the source is damaged")
	// ErrForeign means that a file or directory is of neither kvnode nor etcd.
	ErrForeign = errors.New("kvnode: this is no snapshot, neither of kvnode nor of etcd")
)

// ImportAdvice says how to move keys from etcd to kvnode.
const ImportAdvice = "run etcd with its data directory, save a snapshot with `etcdctl snapshot save FILE`, and make a data directory of that with " +
	"`kvnode import FILE`, which keeps revisions and TTL leases"

// snapshotFile is a source: a snapshot file of kvnode, with the checksum that it had when it was checked.
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
		return nil, fmt.Errorf("%w: %s of %d bytes has no checksum at its end: it is cut off, or was not made by snapshot save%s", ErrDamaged, path, size, adviceSuffix(path))
	default:
		return nil, fmt.Errorf("%w: %s has %d bytes, want a multiple of %d, plus %d", ErrDamaged, path, size, snapshotAlign, sha256.Size)
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
		return nil, 0, fmt.Errorf("%w: %s is not a regular file: save it to a file, since it is read more than once", ErrForeign, path)
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

// adviceSuffix returns AdviseBareStore as the end of an error text.
func adviceSuffix(path string) string {
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
	if etcdfile.Is(path) {
		return "if it is the member/snap/db of an etcd member, it lacks what only the member's wal has: " + ImportAdvice
	}
	dir := filepath.Dir(path)
	if !isDir(memberdir.Dir(dir).Log()) {
		dir = "DATA_DIR"
	}
	return fmt.Sprintf("if it is the %s of a member, it is a checkpoint, and lacks what was written after it, which is in the %s next to it: "+
		"restore the data directory, which has that too: kvnode snapshot restore %s", memberdir.StateFile, memberdir.LogFolder, dir)
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

// wrapStoreError wraps the store's errors about files in those of this package.
func wrapStoreError(err error) error {
	switch {
	case errors.Is(err, store.ErrForeign):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case errors.Is(err, store.ErrDamaged):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		return err
	}
}

// The layout of the two meta pages at the start of a bbolt database.
const (
	boltMagic    = 0xED0CDAED
	boltMetaAt   = 16 // behind the page's header
	boltMetaSize = 64
)

// databaseSize returns the size that a database's meta pages give, and 0 if the file does not
// begin with one. Either page may be the newer one, so the larger size counts.
func databaseSize(f io.ReaderAt) (size int64) {
	at := int64(boltMetaAt)
	for range 2 {
		meta := make([]byte, boltMetaSize)
		if _, err := f.ReadAt(meta, at); err != nil || binary.NativeEndian.Uint32(meta) != boltMagic {
			return size
		}
		page, pages := binary.NativeEndian.Uint32(meta[8:]), binary.NativeEndian.Uint64(meta[40:])
		if pages < 1<<40 { // else the page is damaged, which a later check reports
			size = max(size, int64(pages)*int64(page))
		}
		at = int64(page) + boltMetaAt
	}
	return size
}

// lacking returns how many bytes are missing at the end of a snapshot file of that size. For a complete database
// without a checksum it returns 0.
func lacking(f io.ReaderAt, size int64) int64 {
	whole := databaseSize(f)
	if whole == 0 || size == whole || size >= whole+sha256.Size {
		return 0
	}
	return whole + sha256.Size - size
}

// ErrRefused means that a snapshot of etcd cannot be imported, for example because it has users.
var ErrRefused = etcdfile.ErrRefused

// Imported describes a snapshot of etcd.
type Imported = etcdfile.Summary

// openEtcd opens a snapshot of etcd, and returns nil if path is not one.
func openEtcd(path string) (*etcdfile.File, error) {
	f, err := etcdfile.Open(path)
	switch {
	case errors.Is(err, store.ErrForeign):
		return nil, nil
	case errors.Is(err, store.ErrDamaged):
		return nil, wrapStoreError(err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	default:
		return f, nil
	}
}

// etcdFile is the source of an import: a snapshot of etcd, with the checksum that it had when it was checked.
type etcdFile struct {
	path  string
	sum   []byte
	file  *etcdfile.File
	quota int64 // 0: none
}

func newEtcdFile(f *etcdfile.File, path string, sum []byte, quota int64) (*etcdFile, error) {
	if err := f.Check(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &etcdFile{path, sum, f, quota}, nil
}

func (e *etcdFile) Close() error { return e.file.Close() }

// copyTo keeps what clients have seen: keys, revisions and TTL leases. Each lease starts with
// its full time. Revisions that etcd has compacted are compacted here. The members, and all
// other data about the old cluster, are dropped.
func (e *etcdFile) copyTo(path string) (origin, error) {
	if err := e.importInto(path); err != nil {
		return origin{}, wrapStoreError(err)
	}
	s, err := e.file.Summary()
	if err != nil {
		return origin{}, wrapStoreError(err)
	}
	// The file may have changed since the check, or during the import.
	sum, err := checkSnapshotFile(e.path, true)
	if err == nil && !bytes.Equal(sum, e.sum) {
		err = fmt.Errorf("%w: %s has changed while it was read", ErrDamaged, e.path)
	}
	return origin{sum: e.sum, imported: &s}, err
}

func (e *etcdFile) importInto(path string) (err error) {
	granted, err := e.file.TTLLeases()
	if err != nil {
		return err
	}
	b, err := boltdb.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	err = store.Import(b, &store.Foreign{
		Index: e.file.Index, Term: e.file.Term, Revision: e.file.Revision, Compacted: e.file.Compacted,
		TTLLeases: granted, Versions: e.file.Versions,
	})
	if size, _ := b.Size(); err == nil && e.quota > 0 && size >= e.quota {
		err = fmt.Errorf("%s makes a store of %d bytes, which must be below the quota, %d: raise the quota, also of the members, "+
			"or compact and defragment etcd and save another snapshot", e.path, size, e.quota)
	}
	return err
}
