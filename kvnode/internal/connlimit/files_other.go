//go:build !unix

package connlimit

// MaxFiles returns 0: the number of file descriptors is unknown.
func MaxFiles() int { return 0 }
