package load

import "context"

// Target is what is loaded.
type Target interface {
	// Client returns the client with that number, counted from 0. Each is used
	// by one goroutine.
	Client(number int) Client
}

// Client does one operation at a time.
type Client interface {
	Read(ctx context.Context, key int) (Seen, error)
	// Write gives key a new value and returns its version.
	Write(ctx context.Context, key int) (version uint64, err error)
}

// Seen is what a read returned.
type Seen struct {
	Version uint64 // 0 if the key does not exist
	Path    Path
}

// Each makes one client serve all clients of a Target: it must be safe for use by
// several goroutines.
type Each struct{ Shared Client }

// Client implements Target.
func (e Each) Client(int) Client { return e.Shared }

// Path is the way by which a read was served, by the server's own word.
type Path uint8

// The paths, as kvnode names them. PathUnknown is a server that does not say.
const (
	PathUnknown Path = iota
	PathLease
	PathJoined
	PathReadIndex
	PathForwarded
	PathLog
	PathSerializable
	pathCount
)

var pathNames = [pathCount]string{"unknown", "lease", "joined", "read_index", "forwarded", "log", "serializable"}

// String returns the path's name.
func (p Path) String() string {
	if p < pathCount {
		return pathNames[p]
	}
	return pathNames[PathUnknown]
}

// ParsePath returns the path with that name, PathUnknown if there is none.
func ParsePath(name string) Path {
	for p, s := range pathNames {
		if s == name {
			return Path(p)
		}
	}
	return PathUnknown
}

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Read Kind = iota
	Write
	kinds
)

// String returns read or write.
func (k Kind) String() string { return [...]string{"read", "write"}[k] }
