//go:build unix

package listener

import (
	"math"
	"syscall"
)

// maxFiles returns how many file descriptors this process may have, 0 if that is
// not known. Go has raised the soft limit to the hard one.
func maxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}
