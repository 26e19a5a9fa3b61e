package kvnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// Published is closed once the registry has this member's name, client URLs and instance.
func (n *Node) Published() <-chan struct{} { return n.publication.done }

// publication registers this member's name, client URLs and instance.
type publication struct {
	self      store.Member
	timeout   time.Duration // of one attempt
	advice    string        // for the error if the registry has another instance
	store     *store.Store
	proposals *proposals.Pending
	life      *lifecycle.Lifecycle
	done      chan struct{} // closed when the registry has self
}

// publishPause is the pause between two attempts.
const publishPause = 500 * time.Millisecond

// run proposes until the registry has self. Each attempt is limited to an election timeout: right after the start,
// the proposal may be lost on its way to the leader, and clients wait until this member is registered.
func (p *publication) run() {
	for !p.isPublished() {
		ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
		r, err := p.proposals.Submit(ctx, &store.Command{Register: &p.self})
		cancel()
		if err == nil && r.Err == nil {
			continue
		}
		if errors.Is(r.Err, store.ErrInstance) {
			p.life.Fail(fmt.Errorf("%w: the cluster knows it with another data directory; %s", ErrLost, p.advice))
			return
		}
		if !p.life.Sleep(publishPause) {
			return
		}
	}
	close(p.done)
}

func (p *publication) isPublished() bool {
	m := p.store.Members().ByID[p.self.ID]
	return m.Instance == p.self.Instance && m.Name == p.self.Name && slices.Equal(m.ClientURLs, p.self.ClientURLs)
}
