package leaderlease

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
)

// NewRawNode returns raft's RawNode for raftConfig, and its Lease. It is raft.NewRawNode and
// New in one call, which leaves no room for two mistakes: raft and the Lease get the same
// configuration, and read Storage at the same moment. Open Storage and let it recover before
// the call.
//
// Both get RecoverCommit(raftConfig.Storage): the commit index that raft starts with is
// raised to the newest configuration change that the log proves to be committed, so that the
// node cannot be elected by a majority of a configuration that is out of use. The
// raftConfig of the caller is not changed.
//
// leaseConfig.Raft must be nil, since raftConfig takes its place. NewRawNode returns an error
// where raft.NewRawNode panics because Applied is above the commit index. On other values
// that raft refuses and Config.Validate does not check, it panics as raft does.
func NewRawNode(raftConfig *raft.Config, leaseConfig Config) (*raft.RawNode, *Lease, error) {
	own, l, err := newPair("NewRawNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	node, err := raft.NewRawNode(own)
	if err != nil {
		return nil, nil, fmt.Errorf("leaderlease: make the RawNode: %w", err)
	}
	return node, l, nil
}

// RestartNode returns raft.RestartNode(raftConfig) behind its Lease, as Wrap returns it, and
// the Lease. What NewRawNode says of the two configurations is true of RestartNode.
func RestartNode(raftConfig *raft.Config, leaseConfig Config) (raft.Node, *Lease, error) {
	own, l, err := newPair("RestartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	return wrap(raft.RestartNode(own), l), l, nil
}

// StartNode returns raft.StartNode(raftConfig, peers) behind its Lease, as Wrap returns it, and
// the Lease: the node is the member of a new group, whose log begins with peers. Where raft
// panics without peers, and goes on without them if the log is not empty, StartNode returns
// an error. What NewRawNode says of the two configurations is true of StartNode.
func StartNode(raftConfig *raft.Config, leaseConfig Config, peers []raft.Peer) (raft.Node, *Lease, error) {
	if len(peers) == 0 {
		return nil, nil, errors.New("leaderlease: StartNode needs the peers of the new group: use RestartNode without")
	}
	own, l, err := newPair("StartNode", raftConfig, leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	if l.lastAtStart > 0 || l.hardTermAtStart > 0 {
		return nil, nil, fmt.Errorf("leaderlease: StartNode begins an empty log, and the one in Storage ends at index %d, with a HardState of term %d: use RestartNode "+
			"(a process that was killed in its first write leaves entries and no HardState: delete the log, and call StartNode)", l.lastAtStart, l.hardTermAtStart)
	}
	return wrap(raft.StartNode(own, peers), l), l, nil
}

// newPair returns the configuration that raft is to run with, and the Lease of the same.
func newPair(caller string, raftConfig *raft.Config, leaseConfig Config) (*raft.Config, *Lease, error) {
	if leaseConfig.Raft != nil {
		return nil, nil, fmt.Errorf("leaderlease: Config.Raft is set, and %s has a raft.Config of its own: leave Config.Raft nil", caller)
	}
	if raftConfig != nil {
		own := *raftConfig
		if own.Storage != nil {
			own.Storage = RecoverCommit(own.Storage)
		}
		leaseConfig.Raft = &own
	}
	l, err := New(leaseConfig)
	if err != nil {
		return nil, nil, err
	}
	if applied, commit := raftConfig.Applied, l.commit.Load(); applied > commit {
		return nil, nil, fmt.Errorf("leaderlease: raft.Config.Applied %d is above the commit index %d of Storage: give raft the lower of the two "+
			"(Config.ConfIndex is for a state machine that is ahead of the log)", applied, commit)
	}
	return leaseConfig.Raft, l, nil
}
