package kvnode

import "syscall"

// freeBytes is how much room the disk of dir has for this process.
func freeBytes(dir string) (int64, bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail * uint64(fs.Bsize)), true
}
