package restore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/leaderlease/go/kvnode/internal/etcdfile"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// ErrRefused means that a snapshot of etcd has something that kvnode cannot keep, such as users,
// or does not know.
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
		return nil, explainForeign(err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	default:
		return f, nil
	}
}

// etcdFile is the source of an import: a snapshot of etcd that was checked, with the checksum
// that it had then.
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
		return origin{}, explainForeign(err)
	}
	s, err := e.file.Summary()
	if err != nil {
		return origin{}, explainForeign(err)
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
