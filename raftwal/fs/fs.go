// Package fs is the interface between raftwal and the file system: one directory and its
// files, with the operations that the log needs for durability.
//
// OS is a directory of the operating system. Memory is a disk in memory for tests. At any
// operation it can lose any subset of the unsynced changes, fail, write short, be full and
// be slow, reproducibly from a seed.
//
// # What a directory promises
//
//   - WriteAt and a change of size are durable once Sync of that file has returned nil. If
//     a crash comes first, each sector of 512 bytes has its content as of the last Sync or
//     of a later write.
//   - Create, Rename and Remove are durable once Sync of the directory has returned nil.
//     If a crash comes first, each of them has happened or not. A Rename is atomic.
//   - A failed Sync makes nothing durable, and a later one does not repeat its work.
package fs

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// FS is one flat directory.
type FS interface {
	// Names lists the files, in any order.
	Names() ([]string, error)
	// Create makes an empty file, open for reading and writing. It fails with
	// os.ErrExist if the name exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading.
	OpenRead(name string) (File, error)
	// Rename renames a file, and replaces an existing one.
	Rename(from, to string) error
	// Remove deletes a file. Open files can still be read.
	Remove(name string) error
	// Sync makes the names durable.
	Sync() error
	// Lock locks the file with that name exclusively, and creates it if necessary. It fails
	// with ErrLocked if the file is already locked, also by this process. The lock ends with
	// Close or with the process.
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

// ErrLocked is returned by Lock if the file is already locked. Match it with errors.Is.
var ErrLocked = errors.New("fs: locked by another process")

// IsNoSpace reports whether err means that the disk or the user's quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota)
}

// Kind is the kind of an operation.
type Kind int

// The operations, first those that change nothing.
const (
	OpList Kind = iota
	OpOpen
	OpLock
	OpRead
	OpCreate
	OpRename
	OpRemove
	OpSyncDir
	OpWrite
	OpSync
)

var kindNames = [...]string{"list", "open", "lock", "read", "create", "rename", "remove", "sync dir", "write", "sync"}

// String returns the operation's name.
func (k Kind) String() string { return kindNames[k] }

func (k Kind) changes() bool { return k >= OpCreate }

// Op is one operation that a Memory is about to do.
type Op struct {
	// Name is the file. To is the new name in a rename.
	Kind     Kind
	Name, To string
	// N numbers the operations that change something, from 1. Another operation has the
	// number of the last one that changed something.
	N int
	// Off and Len are the place of a read or a write.
	Off, Len int64
}

// String describes the operation in a line.
func (o Op) String() string {
	switch o.Kind {
	case OpRead, OpWrite:
		return fmt.Sprintf("%d: %v %s [%d, %d)", o.N, o.Kind, o.Name, o.Off, o.Off+o.Len)
	case OpRename:
		return fmt.Sprintf("%d: %v %s to %s", o.N, o.Kind, o.Name, o.To)
	default:
		return fmt.Sprintf("%d: %v %s", o.N, o.Kind, o.Name)
	}
}

// Fault makes an operation fail.
type Fault struct {
	// Err is what the operation returns. With ErrCrashed any part of the operation may be
	// on the disk, and every later operation fails, too.
	Err error
	// Keep is how many bytes are written by a failing write, if Err is not ErrCrashed.
	Keep int64
}

// CrashAt returns a hook that crashes in operation n.
func CrashAt(n int) func(Op) *Fault {
	return func(op Op) *Fault {
		if op.N < n || !op.Kind.changes() {
			return nil
		}
		return &Fault{Err: ErrCrashed}
	}
}

// FailAt returns a hook with which operation n fails with err. A write writes half of its
// bytes.
func FailAt(n int, err error) func(Op) *Fault {
	return func(op Op) *Fault {
		if op.N != n || !op.Kind.changes() {
			return nil
		}
		return &Fault{Err: err, Keep: op.Len / 2}
	}
}
