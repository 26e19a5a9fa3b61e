package checkpoint

import "syscall"

// freeBytes returns the free space for this process on the file system of dir, and whether it is known.
func freeBytes(dir string) (free int64, known bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail * uint64(fs.Bsize)), true
}
