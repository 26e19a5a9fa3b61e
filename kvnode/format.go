package kvnode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// formatPause is between two looks at whether the cluster's format can be raised.
const formatPause = time.Second

// raiseFormat has the leader raise the cluster's format as soon as all members have
// said that their version knows a newer one. Until then what is new is not used.
//
// What they say is a hint, for a member may come back with an older version. The
// entry itself keeps such a member from going on: it is a configuration change of a
// kind that versions of the first format do not take, and stop at, and of which
// later ones know whether they know its format.
func (n *Node) raiseFormat() {
	var known []string
	for n.store.Format() < n.cfg.newestFormat {
		select {
		case <-n.stopping:
			return
		case <-time.After(formatPause):
		}
		if n.LeadingTerm() == 0 {
			continue
		}
		format, old := n.commonFormat()
		if len(old) > 0 && !slices.Equal(old, known) {
			n.log.Info("kvnode: the cluster's format stays until members are of newer versions", "format", n.store.Format(), "members", old)
		}
		known = old
		if format > n.store.Format() {
			n.proposeFormat(format)
		}
	}
}

// commonFormat returns the newest format that all members know, 0 if one has not
// said, and who of them knows less than this one.
func (n *Node) commonFormat() (format int64, old []string) {
	format = n.cfg.newestFormat
	said := map[uint64]int64{n.ID(): format}
	for _, p := range n.links.Peers() {
		if p.Connected {
			said[p.ID] = max(p.Hello.Format, store.FormatFirst)
		}
	}
	for _, m := range sortedMembers(n.store.Members()) {
		knows, ok := said[m.ID]
		format = min(format, knows)
		if ok && knows < n.cfg.newestFormat {
			old = append(old, m.Name)
		}
	}
	return format, old
}

func (n *Node) proposeFormat(format int64) {
	c := confContext{Proposal: n.waiters.id(), Format: format}
	entry, err := formatEntry(&c)
	if err != nil {
		n.fail(err)
		return
	}
	// If it fails it is tried again, or another leader does.
	if _, err := n.await(context.Background(), proposal{id: c.Proposal, entry: entry}); err == nil {
		n.log.Info("kvnode: the cluster's format is raised", "format", format)
	}
}

// formatEntry is a configuration change of nobody.
func formatEntry(c *confContext) (*raftpb.Entry, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	nobody := []*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raft.None)}}
	data, err = proto.Marshal(&raftpb.ConfChangeV2{Changes: nobody, Context: data})
	return &raftpb.Entry{Type: raftpb.EntryConfChangeV2.Enum(), Data: data}, err
}

// decodeFormat returns what formatEntry was made of, and a change of nobody for
// raft. A member that does not know the format must not apply anything after it.
func (n *Node) decodeFormat(e *raftpb.Entry) (*raftpb.ConfChange, *confContext, error) {
	cc, c := &raftpb.ConfChangeV2{}, &confContext{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(cc.GetContext(), c); err != nil {
		return nil, nil, fmt.Errorf("context: %w", err)
	}
	if c.Format < store.FormatFirst || c.Format > n.cfg.newestFormat {
		return nil, nil, fmt.Errorf("it raises the cluster's format to %d, and this version knows %d to %d: start this member with the version of the others",
			c.Format, store.FormatFirst, n.cfg.newestFormat)
	}
	return &raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(raft.None)}, c, nil
}

// knowsFormat refuses a peer whose version does not know the cluster's format: it
// stops, or has stopped, where the format was raised.
func (n *Node) knowsFormat(h transport.Hello) error {
	if format := n.store.Format(); max(h.Format, store.FormatFirst) < format {
		return &transport.Refusal{Reason: transport.ReasonOther, Text: fmt.Sprintf(
			"member %x (%s) is of a version that knows format %d, and the cluster has format %d: start it with the version of the others",
			h.From, h.Name, max(h.Format, store.FormatFirst), format)}
	}
	return nil
}
