package demo

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// election is when a member won, as far as can be known from outside: it did not
// lead yet when asked at after, and said that it leads by by.
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

// watchPause is between two questions whether a member leads.
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
		_ = sleep(ctx, watchPause)
	}
	return e, false
}
