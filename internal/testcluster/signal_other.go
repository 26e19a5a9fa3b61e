//go:build !unix

package testcluster

import (
	"errors"
	"os"
)

var errNoPause = errors.New("this system cannot pause a process")

func pauseProcess(*os.Process) error { return errNoPause }
func wakeProcess(*os.Process) error  { return errNoPause }
