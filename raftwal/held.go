package raftwal

import (
	"fmt"
	"path/filepath"

	"github.com/leaderlease/go/raftwal/fs"
)

// CheckLock returns ErrLocked if a process has the log in dir open. It changes
// nothing, and a log that is missing is not locked. For a moment it holds the lock
// itself; an Open just then tries again.
func CheckLock(dir string) error {
	if err := fs.CheckLock(filepath.Join(dir, lockName)); err != nil {
		return fmt.Errorf("raftwal: lock the log: %w", err)
	}
	return nil
}
