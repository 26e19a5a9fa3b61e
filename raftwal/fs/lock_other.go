//go:build !illumos && (!unix || aix || solaris)

package fs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// lockFile fails. Locks of fcntl belong to the process, so one process could open a log
// twice.
func lockFile(*os.File) error {
	return fmt.Errorf("fs: there is no flock on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func shareLock(f *os.File) error { return lockFile(f) }
