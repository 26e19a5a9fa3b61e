//go:build !linux

package fs

import "os"

// syncData is fsync. On Darwin it is F_FULLFSYNC: with fsync alone the drive may keep the
// data in its cache.
func syncData(f *os.File) error { return f.Sync() }
