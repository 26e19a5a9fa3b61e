//go:build !linux

package fs

import "os"

// syncData is fsync, or on Darwin F_FULLFSYNC, without which the drive may keep
// the data in its cache.
func syncData(f *os.File) error { return f.Sync() }
