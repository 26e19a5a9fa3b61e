package demo

import (
	"context"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
)

// probePause is between two reads of a prober.
const probePause = 2 * time.Millisecond

// prober asks one member for read after read under its lease.
type prober struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		seen sightings
	}
}

// sightings is what a prober has seen of a lease.
type sightings struct {
	count       int             // reads served under it
	term        uint64          // of the last one
	first, last kvclient.Answer // served under it
	// until is the latest instant up to which an answer promised further reads:
	// an answer's lease was read after its call, so it ends no earlier than its
	// remaining time after that.
	until time.Time
}

func (s *sightings) add(a kvclient.Answer) {
	if s.count == 0 {
		s.first = a
	}
	s.count, s.term, s.last = s.count+1, a.Term, a
	if end := a.Called.Add(a.Remaining); end.After(s.until) {
		s.until = end
	}
}

// probe starts to probe a member.
func (p *play) probe(ctx context.Context, c *client) *prober {
	ctx, cancel := context.WithCancel(ctx)
	pr := &prober{cancel: cancel}
	reader := p.cast.actor()
	pr.done.Go(func() {
		for ctx.Err() == nil {
			got, err := reader.get(ctx, c, p.cast.keys.Key(0), modeLease)
			if err == nil && got.Path == pathLease {
				pr.mu.Lock()
				pr.mu.seen.add(got)
				pr.mu.Unlock()
			}
			_ = sleep(ctx, probePause)
		}
	})
	return pr
}

func (pr *prober) seen() sightings {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.mu.seen
}

// stop gives up the read under way and returns what was seen.
func (pr *prober) stop() sightings {
	pr.cancel()
	pr.done.Wait()
	return pr.seen()
}

// sleep returns nil after d, or ctx's cause as soon as ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
