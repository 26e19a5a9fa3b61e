//go:build !unix

package fs

import (
	"errors"
	"os"
)

func syncDir(string) error { return errors.ErrUnsupported }

func lockFile(*os.File) error { return errors.ErrUnsupported }
