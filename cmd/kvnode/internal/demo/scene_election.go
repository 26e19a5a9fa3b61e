package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
)

// firstKey is the first that anybody reads.
const firstKey = keyPrefix + "first"

// election: three fresh nodes, up to the first read and write.
func (p *play) election(ctx context.Context) error {
	begun := time.Now()
	if err := p.Start(); err != nil {
		return err
	}
	first, err := p.firstRead(ctx)
	if err != nil {
		return err
	}
	p.claimf(differs("a key that nobody wrote", first.Value, ""), "a linearizable read was answered, and shows an empty store")
	p.notef("%s after the first process was started", short(first.Returned.Sub(begun)))

	if err := p.findLeader(ctx); err != nil {
		return err
	}
	leader := p.clients[p.leader]
	p.claimf(nil, "all three name %s as leader of term %d, and so does %s itself", leader.m.Name, p.term, leader.m.Name)

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

// firstRead asks all members until one of them answers.
func (p *play) firstRead(ctx context.Context) (kvclient.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no read was answered within %v", patience))
	answers := make(chan kvclient.Answer, len(p.clients))
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel() // first: the readers end by it
	for _, c := range p.clients {
		reader := p.cast.actor()
		readers.Go(func() {
			for ctx.Err() == nil {
				if got, err := reader.get(ctx, c, firstKey, modeAuto); err == nil {
					answers <- got
					return
				}
				_ = sleep(ctx, retryPause)
			}
		})
	}
	select {
	case got := <-answers:
		return got, nil
	case <-ctx.Done():
		return kvclient.Answer{}, context.Cause(ctx)
	}
}

// sleep returns early if ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
