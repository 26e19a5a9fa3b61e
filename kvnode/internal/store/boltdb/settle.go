package boltdb

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/raftwal/fs"
)

// Settle implements store.Backend: it makes durable what bbolt shows. A process that has ended between bbolt's
// write and its sync, or whose sync has failed, leaves the newest meta page in
// memory only; one that has ended within a replacement leaves the file's name
// there.
//
// It is for the time between commits. Readers may go on: no byte of what they see
// changes.
func (b *backend) Settle() error {
	if err := b.failed(); err != nil {
		return err
	}
	f, err := b.acquire()
	if err != nil {
		return err
	}
	err = settlePath(b.path, int64(f.db.Info().PageSize))
	return errors.Join(err, b.release(f))
}

func settlePath(path string, pageSize int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(Settle(f, pageSize), f.Close()); err != nil {
		return fmt.Errorf("make the newest checkpoint in %s durable: %w", path, err)
	}
	return fs.SyncDir(filepath.Dir(path))
}

// Settle writes the newest meta page of f again and syncs all of f. The sync alone
// would not do: after one that has failed, the operating system takes the page for
// written.
//
// The other pages need not be written again. bbolt writes a meta page only when a
// sync of all that it refers to has succeeded, and never writes those pages while
// it is the newest; so it does not matter what became of the pages of a commit
// that got no further. A tool that copied the file here may not have synced it at all,
// which the sync makes up for.
//
// A power failure during the write leaves this meta page or the one before, and
// nobody relies on this one yet: it is one sector.
func Settle(f SettleFile, pageSize int64) error {
	page, at, err := newestMeta(f, pageSize)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(page, at); err != nil {
		return err
	}
	return f.Sync()
}

// SettleFile is what Settle needs of a file.
type SettleFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}
