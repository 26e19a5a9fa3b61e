package store

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Results that no etcd server gives. Like etcd's own they are gRPC statuses,
// and every member gives the same one for the same entry.
var (
	// ErrFenced says that a command was dropped because the entry's term is not
	// the one that it was meant for: another leader took over before it.
	ErrFenced = status.Error(codes.Aborted, "kvnode: command is of another term")
	// ErrUnimplemented says that an entry holds a kind of request that this
	// version does not know.
	ErrUnimplemented = status.Error(codes.Unimplemented, "kvnode: request is not implemented")
	// ErrMalformed says that an entry's data is not a command.
	ErrMalformed = status.Error(codes.Internal, "kvnode: malformed command")
	// ErrInstance says that a member has been in the cluster with another data
	// directory, and with it has lost what it promised.
	ErrInstance = status.Error(codes.FailedPrecondition, "kvnode: member has another data directory")
	// ErrNoGrant says that a LeaseRevoke or LeaseCheckpoint with a fence was dropped
	// because it does not say which grants it means: whoever proposed it did not know
	// the cluster's format yet.
	ErrNoGrant = status.Error(codes.Aborted, "kvnode: command names no grant of a TTL lease")
	// ErrStale says that an entry was dropped because its effect is there
	// already: its index is not above Applied.
	ErrStale = status.Error(codes.AlreadyExists, "kvnode: entry is applied already")
)

var (
	// ErrForeign says that a file is a database, or another thing, that was not
	// made by this package.
	ErrForeign = errors.New("store: not a kvnode database")
	// ErrFormat says that a database was made by another version of this
	// package, in a format that this one does not read.
	ErrFormat = errors.New("store: unknown database format")
	// ErrDamaged says that a database or a snapshot does not hold what was
	// written to it.
	ErrDamaged = errors.New("store: database is damaged")
	// ErrNoCheckpoint says that a snapshot is of a database without checkpoint.
	ErrNoCheckpoint = errors.New("store: no checkpoint")
	// ErrClosed says that the store is closed.
	ErrClosed = errors.New("store: closed")
)
