package kvnode

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
)

var (
	// ErrNoLeader means that no leader is known. Nothing was done.
	ErrNoLeader = proposals.ErrNoLeader
	// ErrLeaderChanged means that the leader changed during the request. A write may or may not take
	// effect.
	ErrLeaderChanged = proposals.ErrLeaderChanged
	// ErrTimeout means that the request took longer than RequestTimeout, or a transfer of leadership longer than its
	// limit, or that a snapshot replaced the entry of a membership change. A write may or may not take effect.
	ErrTimeout = proposals.ErrTimeout
	// ErrTooManyRequests means that too many proposals are pending. Nothing was done.
	ErrTooManyRequests = proposals.ErrTooManyRequests
	// ErrStopped means that the node has stopped. A pending write may or may not take effect.
	ErrStopped = lifecycle.ErrStopped
	// ErrNotLeader means that only the leader can serve the request.
	ErrNotLeader = proposals.ErrNotLeader
	// ErrNotVoter means that leadership was to go to a member that is no voter: it does not exist, or is a learner.
	ErrNotVoter = errors.New("kvnode: not a voter")
	// ErrTooLarge means that a command exceeds Config.MaxRequestBytes. Nothing was done.
	ErrTooLarge = proposals.ErrTooLarge
	// ErrDiskFull means that this member's disk is full. Until there is free space the member refuses
	// writes, and linearizable reads may time out. Nothing was done.
	ErrDiskFull = proposals.ErrDiskFull
	// ErrLost means that this member has lost entries, votes or promises. It must be removed, and added
	// again with an empty directory.
	ErrLost = memberdir.ErrLost
	// ErrForeignCluster means that this member, which has not taken part in any cluster yet, was made for
	// another cluster than that of the other members.
	ErrForeignCluster = membership.ErrForeignCluster
)

// The functions below return advice for the operator, for errors and log lines. It names the fields of
// Config; cmd/kvnode replaces them by its flags.

// advise adds advice to an error about a lost data directory.
func (c *Config) advise(err error, id uint64) error {
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("%w; %s", err, c.adviceReplace(id))
	}
	return err
}

// adviceReplace returns the advice for a member that cannot use its data directory any more.
func (c *Config) adviceReplace(id uint64) string {
	return fmt.Sprintf("remove it from the cluster (member remove %x) unless that is done, add it anew (member add %s --peer-urls=%s), "+
		"remove %s, and start it with Config.Existing", id, c.Name, strings.Join(c.self().PeerURLs, ","), c.DataDir)
}

// adviceForeign returns the advice for a member that the members of another cluster refuse.
func (c *Config) adviceForeign(joined bool) string {
	if joined {
		return adviceJoinAgain
	}
	return "the ID of a cluster is made of Config.Cluster and Config.Token as they were when the data directory was made, " +
		"and they must be the same on all members: if those of the others are right, remove " + c.DataDir +
		", which holds nothing yet, and start this member with theirs; a cluster that was there before, or was restored from a snapshot, " +
		"is joined with Config.Existing, after member add"
}

// adviceJoinAgain is the advice for a member that was added to a cluster and has not taken part yet.
const adviceJoinAgain = "remove the data directory, which holds nothing yet, add the member to the cluster (member add) " +
	"unless that is done, and start it with Config.Existing"
