//go:build unix

package connlimit

import (
	"math"
	"syscall"
)

// MaxFiles returns how many file descriptors this process may have, 0 if that is
// unknown. Go raises the soft limit to the hard limit at start.
func MaxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}
