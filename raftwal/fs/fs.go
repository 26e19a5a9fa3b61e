// Package fs is the seam between raftwal and the file system: one directory and
// its files, with exactly the operations whose durability the log depends on.
//
// OS is the operating system's directory. Memory is its twin for tests: a disk
// that can lose, at any operation, any subset of what was not synced, refuse
// operations, write short, run full and be slow, reproducibly from a seed.
//
// # What a directory promises
//
//   - WriteAt and a change of size are durable once Sync of that file has
//     returned nil; until then each sector of 512 bytes is, after a crash, as
//     some write since the last Sync left it, or as that Sync did.
//   - Create, Rename and Remove are durable once Sync of the directory has
//     returned nil; until then each of them has, after a crash, happened or not.
//     One Rename happens as a whole.
//   - A failed Sync makes nothing durable, and no later one makes up for it.
package fs

import (
	"errors"
	"io"
	"syscall"
)

// FS is one flat directory.
type FS interface {
	// Names lists the files, in any order.
	Names() ([]string, error)
	// Create makes an empty file, open for reading and writing. It fails with
	// fs.ErrExist if there is one of this name.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Rename gives a file another name, replacing what had it.
	Rename(from, to string) error
	// Remove deletes a file. Those who have it open can still read it.
	Remove(name string) error
	// Sync makes the names durable.
	Sync() error
	// Lock takes the exclusive lock that the file name stands for, creating the
	// file if necessary. It fails with ErrLocked if somebody else holds it, and
	// ends with Close or with the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the contents and the size durable, as fdatasync does.
	Sync() error
	// Size returns the size in bytes.
	Size() (int64, error)
}

// ErrLocked is returned by Lock when the lock is taken. Match it with
// errors.Is.
var ErrLocked = errors.New("fs: locked by another process")

// IsNoSpace reports whether err says that the disk, or the user's share of it,
// is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota)
}
