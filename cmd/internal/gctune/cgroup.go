package gctune

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// cgroupLimit returns the memory limit of the process: the lowest of its control group (version 2) and the groups
// above it, or 0 without a limit.
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
			data, _ := fs.ReadFile(root, path.Join("sys/fs/cgroup", dir, "memory.max")) // missing, or "max"
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
