package storesim

import (
	"os"
	"path/filepath"

	"github.com/leaderlease/go/kvnode/store"
)

// disk is where a machine keeps its checkpoints.
type disk interface {
	store.Backend
	// arrive puts a snapshot from a peer where Restore finds it.
	arrive(data []byte) (path string, err error)
	// reopen returns the disk as a new process finds it, when the store of the
	// last one is closed.
	reopen() (disk, error)
}

// boltDisk is a bbolt database. Nothing fails, and a crash is the end of the
// process.
type boltDisk struct {
	store.Backend
	path string
}

func openBolt(path string) (disk, error) {
	b, err := store.OpenBolt(path)
	if err != nil {
		return nil, err
	}
	return &boltDisk{b, path}, nil
}

func (d *boltDisk) arrive(data []byte) (string, error) {
	path := d.path + ".incoming"
	return filepath.Clean(path), os.WriteFile(path, data, 0o600)
}

func (d *boltDisk) reopen() (disk, error) { return openBolt(d.path) }
