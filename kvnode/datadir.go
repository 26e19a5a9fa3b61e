package kvnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/leaderlease/go/raftwal"
)

// CheckDataDir reports why Start would refuse the data directory: it is another
// member's or another cluster's, holds what is nobody's, has lost its log, or is
// in use. It changes nothing, asks no peer, and reads no log.
func (c Config) CheckDataDir() error {
	c = c.WithDefaults()
	if _, err := os.Stat(c.DataDir); errors.Is(err, fs.ErrNotExist) {
		return nil // it will be made
	}
	id, err := readIdentity(&c)
	if errors.Is(err, fs.ErrNotExist) {
		return c.checkEmpty()
	}
	n := &Node{cfg: c}
	if _, gone := os.Stat(n.walDir()); err == nil && id.Started && errors.Is(gone, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the log %s is missing, but this member has run before", ErrLost, n.walDir())
	}
	return errors.Join(err, c.checkUnused())
}

// checkUnused reports whether a process runs with the data directory.
func (c *Config) checkUnused() error {
	n := &Node{cfg: *c}
	err := raftwal.CheckLock(n.walDir())
	if errors.Is(err, raftwal.ErrLocked) {
		return fmt.Errorf("data directory %s: a member runs with it: %w", c.DataDir, err)
	}
	return err
}
