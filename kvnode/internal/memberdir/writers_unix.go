//go:build unix

package memberdir

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// otherWriters returns the users that may write to a file, besides this process's user and root, or "".
func otherWriters(info fs.FileInfo) string {
	perm := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return "" // the permissions of a link have no effect
	case perm&0o002 != 0:
		return "all users"
	case perm&0o020 != 0:
		return "its group"
	case ok && stat.Uid != 0 && int64(stat.Uid) != int64(os.Geteuid()):
		return fmt.Sprintf("its owner, user %d", stat.Uid)
	default:
		return ""
	}
}
