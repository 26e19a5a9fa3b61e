package failover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// disk is an ext4 file system for one member, in a file. When it fails, each read, write and
// sync returns EIO, as for a disk that is gone. It needs root on Linux, and mkfs.ext4.
type disk struct {
	image, dir string
	failed     bool
}

// diskSize is the size of the file, which is sparse.
const diskSize = 1 << 30

// newDisk mounts a new one at dir.
func newDisk(image, dir string) (*disk, error) {
	d := &disk{image: image, dir: dir}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	err := os.Truncate(image, diskSize)
	if err == nil {
		err = command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = command("mount", "-o", "loop", image, dir)
	}
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(dir, "lost+found")), os.Chmod(dir, 0o700))
	}
	if err != nil {
		return nil, fmt.Errorf("make a disk: %w", err)
	}
	return d, nil
}

// sync writes what servers do not sync by themselves, such as their certificates.
func (d *disk) sync() error { return command("sync", "-f", d.dir) }

func (d *disk) fail() error {
	d.failed = true
	return shutDown(d.dir)
}

// repair mounts it again, with the data that was synced before.
func (d *disk) repair() error {
	err := errors.Join(command("umount", d.dir), command("mount", "-o", "loop", d.image, d.dir))
	d.failed = err != nil
	return err
}

func (d *disk) close() error { return errors.Join(command("umount", d.dir), os.Remove(d.image)) }
