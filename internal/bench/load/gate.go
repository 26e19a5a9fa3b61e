package load

import (
	"context"
	"errors"
	"sync/atomic"
)

// Gate stands between clients and a member in the same process, whose process
// is to look dead or paused to them.
type Gate struct{ state atomic.Int32 }

const (
	gateOpen int32 = iota
	gatePaused
	gateDown
)

// ErrDown is what the clients of a dead member get, as from a closed port.
var ErrDown = errors.New("load: the member is down")

// Pause lets clients wait until their time is over.
func (g *Gate) Pause() { g.state.Store(gatePaused) }

// Kill refuses clients at once.
func (g *Gate) Kill() { g.state.Store(gateDown) }

// Open ends both.
func (g *Gate) Open() { g.state.Store(gateOpen) }

// Guard returns c behind the gate. What a member answers after the gate was
// closed, its clients do not get.
func (g *Gate) Guard(c Client) Client { return guarded{g, c} }

type guarded struct {
	gate *Gate
	to   Client
}

func (g *Gate) pass(ctx context.Context) error {
	switch g.state.Load() {
	case gateOpen:
		return nil
	case gateDown:
		return ErrDown
	default:
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// Read implements Client.
func (g guarded) Read(ctx context.Context, key int) (Seen, error) {
	if err := g.gate.pass(ctx); err != nil {
		return Seen{}, err
	}
	seen, err := g.to.Read(ctx, key)
	if err == nil {
		err = g.gate.pass(ctx)
	}
	return seen, err
}

// Write implements Client.
func (g guarded) Write(ctx context.Context, key int) (uint64, error) {
	if err := g.gate.pass(ctx); err != nil {
		return 0, err
	}
	version, err := g.to.Write(ctx, key)
	if err == nil {
		err = g.gate.pass(ctx)
	}
	return version, err
}
