package kvnode

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/raftwal"
	walfs "github.com/leaderlease/go/raftwal/fs"
)

// lockFile is locked by whoever makes or runs with the data directory. The log has
// a lock of its own, but there is no log yet when the identity is written.
const lockFile = "lock"

// lock makes the data directory if it is missing, and takes it for this process
// alone until the lock is closed. It leaves nothing in a directory that it refuses.
func (c *Config) lock() (io.Closer, error) {
	if err := c.checkUnused(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.DataDir, identityFile)); errors.Is(err, fs.ErrNotExist) {
		if err := c.makeEmpty(); err != nil {
			return nil, err
		}
	}
	dir, err := walfs.OS(c.DataDir)
	if err != nil {
		return nil, err
	}
	lock, err := dir.Lock(lockFile)
	return lock, c.inUse(err)
}

// inUse explains why a lock was not to be had.
func (c *Config) inUse(err error) error {
	switch {
	case errors.Is(err, walfs.ErrLocked):
		return fmt.Errorf("data directory %s: a member runs with it, or is being made or restored: %w", c.DataDir, err)
	case err != nil:
		return fmt.Errorf("lock the data directory %s: %w", c.DataDir, err)
	default:
		return nil
	}
}

// CheckDataDir reports why Start would refuse the data directory, or the name of a
// member that is to have it. The directory is another member's or another
// cluster's, holds what is nobody's, has lost its log, or is in use. It changes
// nothing, asks no peer, and reads no log.
func (c Config) CheckDataDir() error {
	c = c.WithDefaults()
	if _, err := os.Stat(c.DataDir); errors.Is(err, fs.ErrNotExist) {
		return c.checkName() // it will be made
	}
	id, err := readIdentity(&c)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(c.checkName(), c.checkEmpty(), c.checkUnused())
	}
	n := &Node{cfg: c}
	if _, gone := os.Stat(n.walDir()); err == nil && id.Started && errors.Is(gone, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the log %s is missing, but this member has run before; %s", ErrLost, n.walDir(), c.beginAnew(id.MemberID))
	}
	return errors.Join(err, c.checkUnused())
}

// checkUnused reports whether a process runs with the data directory. One of an
// older version has locked the log alone.
func (c *Config) checkUnused() error {
	err := walfs.CheckLock(filepath.Join(c.DataDir, lockFile))
	if err == nil {
		err = raftwal.CheckLock((&Node{cfg: *c}).walDir())
	}
	return c.inUse(err)
}

// warnOfWriters warns of others who may write to the data directory: what they put
// there the member takes for its votes, its promises and its log.
func (c *Config) warnOfWriters() {
	all := []string{c.DataDir}
	entries, _ := os.ReadDir(c.DataDir) // what cannot be read is said by whoever needs it
	for _, e := range entries {
		all = append(all, filepath.Join(c.DataDir, e.Name()))
	}
	for _, path := range all {
		info, err := os.Lstat(path)
		if path == c.DataDir {
			info, err = os.Stat(path)
		}
		if err != nil {
			continue
		}
		if who := writers(info); who != "" {
			c.Logger.With("component", "kvnode").Warn("others may write to the data directory, and so to what this member has voted and promised",
				"path", path, "who", who, "mode", info.Mode().String(), "advice", "let this process's user own it, and take the permission away: chmod -R go-w "+c.DataDir)
			return
		}
	}
}
