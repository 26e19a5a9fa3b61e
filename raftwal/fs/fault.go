package fs

import "fmt"

// Kind is the kind of an operation.
type Kind int

// The operations, first those that only read.
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
	// Kind says what it is, and Name and To what it is done to.
	Kind     Kind
	Name, To string
	// N counts the operations that change something, from 1; of an operation
	// that only reads it is the number of the last one that did not.
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
	// Err is what the operation returns. ErrCrashed ends everything: the
	// operation has begun, any part of it may be on the disk, and every later
	// one fails too.
	Err error
	// Keep is how many bytes of a write get through, if Err is not ErrCrashed.
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

// FailAt returns a hook that lets operation n fail with err; a
// write gets half of its bytes through.
func FailAt(n int, err error) func(Op) *Fault {
	return func(op Op) *Fault {
		if op.N != n || !op.Kind.changes() {
			return nil
		}
		return &Fault{Err: err, Keep: op.Len / 2}
	}
}
