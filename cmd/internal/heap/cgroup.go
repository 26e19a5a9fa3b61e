package heap

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// cgroupLimit returns the memory that Linux lets the process have, the least of what its
// control group and those above it say, or 0 if nobody says. Version 2 only.
func cgroupLimit(root fs.FS) (limit uint64) {
	self, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(self)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			data, _ := fs.ReadFile(root, path.Join("sys/fs/cgroup", dir, "memory.max")) // not there, or "max"
			n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
			if err == nil && n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
