package memberdir

import (
	"errors"
	"os"

	"github.com/leaderlease/go/raftwal/fs"
)

// Replace makes a file with that content durable; a crash leaves the old or the new.
func (d Dir) Replace(name string, data []byte) error {
	path := d.Path(name)
	if err := writeSynced(path+".tmp", append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return fs.SyncDir(string(d))
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
