//go:build !unix

package fs

import (
	"errors"
	"fmt"
	"runtime"
)

func syncDir(string) error {
	return fmt.Errorf("fs: a directory cannot be synced on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func neverSyncs(error) bool { return false }
