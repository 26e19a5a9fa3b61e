package kvnode

import "fmt"

// ReadMode says how a read is made linearizable.
type ReadMode uint8

const (
	// ReadAuto is what Config.ReadMode says.
	ReadAuto ReadMode = iota
	// ReadLease is under the leader lease, and by a quorum round where there is
	// none.
	ReadLease
	// ReadIndex is by a quorum round whatever the lease says, and so without
	// relying on any clock. On a follower the leader makes the round; where the
	// leader runs a version that does not, it is ReadLog.
	ReadIndex
	// ReadLog is through the log, as a write is.
	ReadLog
	// ReadSerializable is not linearizable: local state, possibly stale.
	ReadSerializable
)

var readModes = [...]string{"auto", "lease", "read-index", "log", "serializable"}

// String returns the name that ParseReadMode takes.
func (m ReadMode) String() string {
	if int(m) < len(readModes) {
		return readModes[m]
	}
	return fmt.Sprintf("ReadMode(%d)", uint8(m))
}

// ParseReadMode returns the mode with that name.
func ParseReadMode(name string) (ReadMode, error) {
	for m, s := range readModes {
		if s == name {
			return ReadMode(m), nil
		}
	}
	return 0, fmt.Errorf("read mode %q must be one of %v", name, readModes)
}
