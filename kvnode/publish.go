package kvnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// publication tells the cluster this member's name, client URLs and instance.
type publication struct {
	*parts
	proposals *proposals.Pending
	known     chan struct{} // closed when the registry has them
}

// Published is closed once the cluster knows this member's name, client URLs and
// instance.
func (p *publication) Published() <-chan struct{} { return p.known }

// publishPause is between two tries to publish.
const publishPause = 500 * time.Millisecond

// run tries until the registry has them. A try takes no longer than an election: what is
// handed to a leader whom only heartbeats reach so far is lost on the way, and clients wait
// for this member until it is known.
func (p *publication) run() {
	self := &store.Member{ID: p.ID(), Name: p.cfg.Name, ClientURLs: p.cfg.ClientURLs, Instance: p.id.Instance}
	for !p.published() {
		ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ElectionTimeout)
		r, err := p.proposals.Submit(ctx, &store.Command{Register: self})
		cancel()
		if err == nil && r.Err == nil {
			continue
		}
		if errors.Is(r.Err, store.ErrInstance) {
			p.life.Fail(fmt.Errorf("%w: the cluster knows it with another data directory; %s", ErrLost, p.cfg.beginAnew(p.ID())))
			return
		}
		if !p.life.Sleep(publishPause) {
			return
		}
	}
	close(p.known)
}

func (p *publication) published() bool {
	m := p.store.Members().ByID[p.ID()]
	return m.Instance == p.id.Instance && m.Name == p.cfg.Name && slices.Equal(m.ClientURLs, p.cfg.ClientURLs)
}
