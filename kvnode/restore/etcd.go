package restore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/leaderlease/go/kvnode/internal/etcdfile"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
)

// ErrSnapshotRefused means that a snapshot of etcd's has what kvnode cannot keep, such as
// users, or does not know.
var ErrSnapshotRefused = etcdfile.ErrRefused

// Imported describes a snapshot of etcd.
type Imported = etcdfile.Summary

// openEtcd opens a snapshot of etcd's, and returns no file for what is none.
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

// etcdFile is a snapshot of etcd's that was checked, and the sum that its file had.
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

// copyTo keeps what clients have seen: keys, revisions and TTL leases, of which each begins
// anew. What was compacted in etcd is compacted here. Members and whatever else is about
// the old cluster stay behind.
func (e *etcdFile) copyTo(path string) (origin, error) {
	if err := e.importInto(path); err != nil {
		return origin{}, explainForeign(err)
	}
	s, err := e.file.Summary()
	if err != nil {
		return origin{}, explainForeign(err)
	}
	// The file may have changed since it was checked, and while it was read.
	sum, err := checkSnapshotFile(e.path, true)
	if err == nil && !bytes.Equal(sum, e.sum) {
		err = fmt.Errorf("%w: %s has changed while it was read", ErrSnapshotDamaged, e.path)
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
		err = fmt.Errorf("it makes a store of %d bytes, which must be below the quota, %d: raise that, for the members, too, "+
			"or compact and defragment etcd and save another snapshot", size, e.quota)
	}
	return err
}
