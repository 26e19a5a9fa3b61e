// Package load puts a Target under a load of reads and writes, measures it and
// audits it.
//
// # What it promises
//
//   - Every operation is counted: as done, as failed, or, in an open loop that
//     fell behind, as not begun, which is a failure too. Failures do not enter
//     the latencies; they are shown beside them.
//   - A closed loop counts what ends within its duration. What began before, or
//     ends later, still has its latency among the others.
//   - A closed loop's latency is from the call to the return. An open loop's is
//     from the moment the operation was due, whether or not a client was free
//     then, so a target that stalls cannot hide it (coordinated omission).
//   - Every read is held against a version floor: the newest version of its key
//     that any operation, of any client, had shown before the read began. A read
//     below it is stale. It does not matter what the read calls itself.
//
// # What it assumes
//
// Versions of a key only grow, and an operation returns the version it has read
// or written. All clients of a Floor run in one process.
//
// All times are from package time, so that tests run in virtual time.
package load

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Load describes a load. Target, Clients, Keys and Duration are required. An invalid Load is
// a bug of the caller.
type Load struct {
	Target Target
	// Clients is how many operations may be under way.
	Clients int
	Keys    Keys
	// WritePercent is the share of writes. Default: 0, only reads.
	WritePercent int
	// Rate is how many operations a second are due, evenly. Default: 0, a closed
	// loop, in which each client does one operation after the other.
	Rate float64
	// Warmup comes before the measurement. Its operations are audited, but not counted.
	Warmup   time.Duration
	Duration time.Duration
	// Grace is how long operations may take that run, or are due, at the end.
	// Default: 10 s.
	Grace time.Duration
	// Floor audits the reads. Loads that follow each other on one target share
	// it. Default: a new one.
	Floor *Floor
	// Sleep paces an open loop. Default: time.Sleep, which may be late by a
	// millisecond; see Sleeper.
	Sleep func(time.Duration)
	Seed  uint64
}

// Result is what a load has measured.
type Result struct {
	Elapsed time.Duration
	Read    *Tally
	Write   *Tally
	// Asked says which kinds of operations the load has, even if none of them ended.
	Asked [kinds]bool
	// Sample is n if the latency of one operation in n was taken.
	Sample int
	// AuditedStale counts stale reads, those of the warm-up included.
	AuditedStale int64
}

// Of returns the tally of a kind.
func (r *Result) Of(k Kind) *Tally {
	if k == Read {
		return r.Read
	}
	return r.Write
}

// defaultGrace is the default of Grace.
const defaultGrace = 10 * time.Second

// Target is the system under load.
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

// Keys says which keys are used, and how often each.
type Keys struct {
	Count int
	// Zipf is the exponent of a Zipf distribution, above 1; the first keys are
	// the hot ones. 0 makes all keys equally likely.
	Zipf float64
}

// chooser returns a source of keys for one client.
func (k Keys) chooser(r *rand.Rand) func() int {
	switch {
	case k.Count == 1:
		return func() int { return 0 }
	case k.Zipf == 0:
		return func() int { return r.IntN(k.Count) }
	default:
		z := rand.NewZipf(r, k.Zipf, 1, uint64(k.Count-1))
		return func() int { return int(z.Uint64()) }
	}
}

// Floor holds the newest version of each key that any operation has shown.
type Floor struct{ keys []atomic.Uint64 }

// NewFloor returns a floor of zero for keys 0 to keys−1.
func NewFloor(keys int) *Floor { return &Floor{keys: make([]atomic.Uint64, keys)} }

// At returns the version that a read of key which begins now may not be below.
func (f *Floor) At(key int) uint64 { return f.keys[key].Load() }

// Raise notes that an operation which has returned showed version.
func (f *Floor) Raise(key int, version uint64) {
	slot := &f.keys[key]
	for {
		// Most operations show nothing new; they only look.
		old := slot.Load()
		if version <= old || slot.CompareAndSwap(old, version) {
			return
		}
	}
}
