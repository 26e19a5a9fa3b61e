package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
)

// firstKey is the first key that the story reads.
const firstKey = keyPrefix + "first"

// election: three fresh nodes, up to the first read and write.
func (p *play) election(ctx context.Context) error {
	begun := time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	first, err := firstOf(ctx, p, p.clients, firstRead)
	if err != nil {
		return err
	}
	p.claimf(differs("a key that was never written", first.Value, ""), "a linearizable read was answered, and shows an empty store")
	p.notef("%s after the first process was started", short(first.Returned.Sub(begun)))

	if err := p.findLeader(ctx); err != nil {
		return err
	}
	leader := p.clients[p.leader]
	p.claimf(nil, "all three name %s as leader of term %d, and so does %s itself", leader.m.Name, p.term, leader.m.Name)
	// The next scenes freeze the leader and kill one of the other two.
	others := p.followers()
	p.notef("a browser shows the leases as they are: %s, or %s", pageOf(others[0]), pageOf(others[1]))

	written, err := p.writeNew(ctx, leader, firstKey)
	if err != nil {
		return err
	}
	for _, c := range p.followers() {
		if err := p.readBack(ctx, c, written); err != nil {
			return err
		}
	}
	p.claimf(nil, "what was written at %s is read at the other two", leader.m.Name)
	return nil
}

// firstOf asks members until one of them answers. Each try has a number.
func firstOf[T any](ctx context.Context, p *play, clients []*client, ask func(ctx context.Context, a *actor, c *client, try int) (T, error)) (first T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing was answered within %v", patience))
	answers := make(chan T, len(clients))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel() // before the wait below: it ends the requests
	for _, c := range clients {
		a := p.cast.actor()
		asking.Go(func() {
			for try := 1; ctx.Err() == nil; try++ {
				if got, err := ask(ctx, a, c, try); err == nil {
					answers <- got
					return
				}
				_ = sleep(ctx, retryPause)
			}
		})
	}
	select {
	case first = <-answers:
		return first, nil
	case <-ctx.Done():
		return first, context.Cause(ctx)
	}
}

// firstRead reads a key.
func firstRead(ctx context.Context, a *actor, c *client, _ int) (kvclient.Answer, error) {
	return a.get(ctx, c, firstKey, modeAuto)
}
