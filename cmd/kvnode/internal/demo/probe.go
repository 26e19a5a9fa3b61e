package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
)

// probePause is the pause between two reads of a prober.
const probePause = 2 * time.Millisecond

// prober reads from one member under its lease, one read after the other.
type prober struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		seen sightings
	}
}

// sightings summarizes a prober's answers.
type sightings struct {
	count       int             // reads served under the lease
	term        uint64          // of the last one
	first, last kvclient.Answer // of these reads
	// until is the latest instant up to which an answer promised further reads. A member reads its lease
	// after the call, so the lease ends at Called plus Remaining at the earliest.
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
			_ = durations.Sleep(ctx, probePause)
		}
	})
	return pr
}

func (pr *prober) seen() sightings {
	pr.mu.Lock()
	defer pr.mu.Unlock()
	return pr.mu.seen
}

// stop cancels the running read and returns the sightings.
func (pr *prober) stop() sightings {
	pr.cancel()
	pr.done.Wait()
	return pr.seen()
}

// election is the time at which a member won, as seen from outside: it did not lead
// when asked at after, and reported to lead at by.
type election struct {
	member    int
	term      uint64
	after, by time.Time
}

// tooEarly checks that a new leader appeared no earlier than the old one's
// promises allowed.
func tooEarly(by, end time.Time) error {
	if by.Before(end) {
		return fmt.Errorf("one was seen %s earlier", short(end.Sub(by)))
	}
	return nil
}

// watchPause is the pause between two status requests.
const watchPause = 4 * time.Millisecond

// nextLeader waits until a member other than the old leader leads in a later term.
func (p *play) nextLeader(ctx context.Context, old int) (election, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no other member led within %v", patience))
	wins := make(chan election, size)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel() // first: the watchers end by it
	for i, c := range p.clients {
		if i == old {
			continue
		}
		watchers.Go(func() {
			if e, ok := watchElection(ctx, c, p.term); ok {
				e.member = i
				wins <- e
			}
		})
	}
	select {
	case e := <-wins:
		p.leader, p.term = e.member, e.term
		return e, nil
	case <-ctx.Done():
		return election{}, context.Cause(ctx)
	}
}

// watchElection asks a member until it leads in a term after old.
func watchElection(ctx context.Context, c *client, old uint64) (e election, won bool) {
	e.after = time.Now()
	for ctx.Err() == nil {
		asked := time.Now()
		r, err := c.status(ctx)
		switch {
		case err != nil:
		case r.Role == "leader" && r.Term > old:
			e.term, e.by = r.Term, time.Now()
			return e, true
		default:
			e.after = asked
		}
		_ = durations.Sleep(ctx, watchPause)
	}
	return e, false
}
