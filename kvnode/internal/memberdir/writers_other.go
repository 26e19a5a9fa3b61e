//go:build !unix

package memberdir

import "io/fs"

// otherWriters does not check: permissions have another meaning on this system.
func otherWriters(fs.FileInfo) string { return "" }
