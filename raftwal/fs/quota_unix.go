//go:build unix

package fs

import "syscall"

var errQuota error = syscall.EDQUOT
