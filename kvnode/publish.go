package kvnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/store"
)

// Published is closed once the cluster knows this member's name, client URLs and
// instance.
func (n *Node) Published() <-chan struct{} { return n.known }

// publishPause is between two tries to publish.
const publishPause = 500 * time.Millisecond

// publish tells the cluster this member's name, client URLs and instance, and
// tries until the registry has them. A try takes no longer than an election: what
// is handed to a leader whom only heartbeats reach so far is lost on the way, and
// clients wait for this member until it is known.
func (n *Node) publish() {
	self := &store.Member{ID: n.ID(), Name: n.cfg.Name, ClientURLs: n.cfg.ClientURLs, Instance: n.id.Instance}
	for !n.published() {
		ctx, cancel := context.WithTimeout(context.Background(), n.cfg.ElectionTimeout)
		r, err := n.submit(ctx, &store.Command{Register: self})
		cancel()
		if err == nil && r.Err == nil {
			continue
		}
		if errors.Is(r.Err, store.ErrInstance) {
			n.fail(fmt.Errorf("%w: the cluster knows it with another data directory; %s", ErrLost, n.cfg.beginAnew(n.ID())))
			return
		}
		select {
		case <-n.stopping:
			return
		case <-time.After(publishPause):
		}
	}
	close(n.known)
}

func (n *Node) published() bool {
	m := n.store.Members().ByID[n.ID()]
	return m.Instance == n.id.Instance && m.Name == n.cfg.Name && slices.Equal(m.ClientURLs, n.cfg.ClientURLs)
}
