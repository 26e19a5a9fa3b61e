//go:build !unix

package boltdb

// syncDir does nothing: there is no way to sync a directory here.
func syncDir(string) error { return nil }
