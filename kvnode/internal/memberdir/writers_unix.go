//go:build unix

package memberdir

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// writers says who may write to a file besides the user that this process is, and
// besides root, who may do as it likes: "" for nobody.
func writers(info fs.FileInfo) string {
	perm := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return "" // its permissions mean nothing
	case perm&0o002 != 0:
		return "everybody"
	case perm&0o020 != 0:
		return "its group"
	case ok && stat.Uid != 0 && int64(stat.Uid) != int64(os.Geteuid()):
		return fmt.Sprintf("its owner, user %d", stat.Uid)
	default:
		return ""
	}
}
