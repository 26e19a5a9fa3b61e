//go:build !illumos && (!unix || aix || solaris)

package fs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// lockFile refuses. The locks that fcntl knows would do here, but they belong to
// the process: it could open a log twice.
func lockFile(*os.File) error {
	return fmt.Errorf("fs: there is no flock on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func shareLock(f *os.File) error { return lockFile(f) }
