package store

import "io"

// Backend keeps checkpoints on stable storage. boltdb.Open returns the one for files, and package
// storetest has one in memory for tests.
//
// A backend holds one meta value, and records in the order of their keys. The data that it shows
// after Open, or after a failed Update, may be in the page cache only; a power failure then brings back
// older data. The store therefore calls EnsureDurable before it relies on it.
//
// View, Size and the methods of images are safe for concurrent use. All other methods are called by
// one goroutine at a time.
type Backend interface {
	// EnsureDurable makes the data that View shows durable. An earlier process, or a failed Update,
	// may not have synced it.
	EnsureDurable() error
	// View returns the data of the newest commit. The image stays as it is until it is closed,
	// whatever is committed or installed meanwhile.
	View() (Image, error)
	// Update makes the changes of fn durable, all or none. It returns fn's error, or its own.
	// After an error, a crash may leave all of the changes or none. If another Update follows
	// without EnsureDurable, a crash may leave damaged data.
	Update(fn func(tx Tx) error) error
	// Stage opens the snapshot in the file at path. It changes nothing.
	Stage(path string) (Staged, error)
	// Defragment releases unused space.
	Defragment() error
	// Size returns the size of the database, and how many bytes of it are in use.
	Size() (total, inUse int64)
	Close() error
}

// Tx is a change of a backend. Slices that it gets or returns must not be changed before it has
// ended.
type Tx interface {
	Meta() []byte
	SetMeta(meta []byte) error
	Record(key []byte) []byte
	SetRecord(key, value []byte) error
	DeleteRecord(key []byte) error
}

// Image is a consistent view of a backend.
type Image interface {
	// Meta returns nil before the first commit.
	Meta() []byte
	// Records calls fn for each record in the order of keys. The slices are valid during the
	// call only.
	Records(fn func(key, value []byte) error) error
	// Size returns the number of bytes that WriteTo writes. They form a file for Stage.
	Size() int64
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

// Staged is a snapshot that can replace the data of a backend.
type Staged interface {
	Image
	// Install replaces the data durably, all or nothing, and consumes the file. If it fails, a
	// crash may leave the old data or the new. Close must still be called.
	Install() error
}
