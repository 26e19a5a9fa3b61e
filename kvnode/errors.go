package kvnode

import (
	"errors"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/proposals"
)

var (
	// ErrNoLeader means that no leader is known. Nothing was done.
	ErrNoLeader = proposals.ErrNoLeader
	// ErrLeaderChanged means that leadership moved while the request was under
	// way. A write may or may not take effect.
	ErrLeaderChanged = proposals.ErrLeaderChanged
	// ErrTimeout means that RequestTimeout ran out. A write may or may not take
	// effect.
	ErrTimeout = proposals.ErrTimeout
	// ErrTooManyRequests means that too many proposals are under way. Nothing was
	// done.
	ErrTooManyRequests = proposals.ErrTooManyRequests
	// ErrStopped means that the node has stopped. A write that was under way may
	// or may not take effect.
	ErrStopped = lifecycle.ErrStopped
	// ErrNotLeader means that only the leader can do that.
	ErrNotLeader = proposals.ErrNotLeader
	// ErrUnknownMember means that there is no such member, or that it is a learner
	// where a voter is needed.
	ErrUnknownMember = errors.New("kvnode: unknown member")
	// ErrTooLarge means that a command exceeds Config.MaxRequestBytes. Nothing was
	// done.
	ErrTooLarge = proposals.ErrTooLarge
	// ErrDiskFull means that this member's disk is full: it takes no writes until
	// there is room. Reads go on, and nothing was done.
	ErrDiskFull = proposals.ErrDiskFull
	// ErrLost means that this member has lost what it had promised to the cluster:
	// it must be removed, and added anew with an empty directory.
	ErrLost = memberdir.ErrLost
	// ErrForeignCluster means that this member, which has not taken part in anything
	// yet, was made for another cluster than the one that it meets.
	ErrForeignCluster = errors.New("kvnode: the other members are of another cluster")
)
