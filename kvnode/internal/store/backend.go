package store

import "io"

// Writer is io.Writer.
type Writer = io.Writer

// Backend keeps checkpoints on stable storage. Open of package boltdb returns the real one;
// package storetest has one in memory that can crash.
//
// What it holds when it is opened, and after an Update that has failed, may be in
// memory only: a power failure then brings back what was there before. Settle
// comes before anything is built on it.
//
// A backend holds one meta value, and records in the order of their keys. Its
// methods are not called concurrently, except that View and Size are called, and
// images read and closed, at any time.
type Backend interface {
	// Settle makes what View shows durable, whatever the process before, or an
	// Update that has failed, has left undone.
	Settle() error
	// View returns what the newest commit left. It stays as it is until closed,
	// whatever is committed or replaced meanwhile.
	View() (Image, error)
	// Update makes what fn does to tx durable, all of it or nothing. It returns
	// fn's error, or its own; then all of it may still be found after a crash, or
	// nothing that is whole, if another Update has begun without a Settle.
	Update(fn func(tx Tx) error) error
	// Stage opens the snapshot in the file path. It changes nothing yet.
	Stage(path string) (Staged, error)
	// Defragment gives unused space back.
	Defragment() error
	// Size returns the size, and how much of it is in use.
	Size() (total, inUse int64)
	Close() error
}

// Tx is a change of a backend. What it is given must not change before the
// change is over, nor does what it returns.
type Tx interface {
	Meta() []byte
	SetMeta(meta []byte) error
	Record(key []byte) []byte
	SetRecord(key, value []byte) error
	DeleteRecord(key []byte) error
}

// Image is a consistent copy of what a backend holds.
type Image interface {
	// Meta returns nil if nothing was committed yet.
	Meta() []byte
	// Records calls fn for each record in the order of keys. What fn is given
	// is valid during the call only.
	Records(fn func(key, value []byte) error) error
	// Size is what WriteTo will write: a file that Stage opens.
	Size() int64
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

// Staged is a snapshot that may replace what a backend holds.
type Staged interface {
	Image
	// Install replaces, durably and as a whole, what the backend holds, and
	// consumes the file. If it fails, either may be found after a crash.
	// Close is still due.
	Install() error
}
