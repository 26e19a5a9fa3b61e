package load

import (
	"context"
	"errors"
	"sync/atomic"
)

// Process is a member's as its clients see it, which run in the same one: to them it is to
// look dead or paused.
type Process struct{ state atomic.Int32 }

const (
	running int32 = iota
	paused
	down
)

// ErrDown is what the clients of a dead member get, as from a closed port.
var ErrDown = errors.New("load: the member is down")

// Pause lets clients wait until their time is over.
func (p *Process) Pause() { p.state.Store(paused) }

// Kill refuses clients at once.
func (p *Process) Kill() { p.state.Store(down) }

// Guard returns c as a client of the process. What a member answers once that is dead or
// paused, its clients do not get.
func (p *Process) Guard(c Client) Client { return guarded{p, c} }

type guarded struct {
	process *Process
	to      Client
}

func (p *Process) pass(ctx context.Context) error {
	switch p.state.Load() {
	case running:
		return nil
	case down:
		return ErrDown
	default:
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// Read implements Client.
func (g guarded) Read(ctx context.Context, key int) (Seen, error) {
	if err := g.process.pass(ctx); err != nil {
		return Seen{}, err
	}
	seen, err := g.to.Read(ctx, key)
	if err == nil {
		err = g.process.pass(ctx)
	}
	return seen, err
}

// Write implements Client.
func (g guarded) Write(ctx context.Context, key int) (uint64, error) {
	if err := g.process.pass(ctx); err != nil {
		return 0, err
	}
	version, err := g.to.Write(ctx, key)
	if err == nil {
		err = g.process.pass(ctx)
	}
	return version, err
}
