// Package supervisor has a member's process waited for by another one, its parent, which does
// nothing else, and tells the member's peers when it is dead. They need not wait then until
// what they have promised it has ended (rule V8 of docs/design.md).
//
// # What it promises
//
//   - An obituary is told only of a process that was the guardian's own child, and that the
//     system has said has exited or was killed (wait4, of that very process ID). A child that
//     is stopped, one whose pipe is closed, and one that cannot be waited for, is not dead.
//   - It carries a secret that the guardian has drawn for that process and kept to itself. The child, and with it
//     each peer, knows only the process ID, a hash of the secret. The next process has another secret.
//   - A guardian that dies takes its child along.
//
// # What it relies on
//
// A process that has ended executes no instruction any more. Where one can be
// resurrected (checkpoint and restore, a clone of its machine, a debugger that restarts it),
// no guardian may be used: an obituary of it may be false, and a second leader elected beside a
// lease that is valid. docs/operations/change.md says when.
//
// Guard is the parent's half, Inherit the child's. They are joined by a pair of sockets that
// the child inherits, and not by its environment, which its own children would inherit.
package supervisor

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// Death is the end of a member's process.
type Death struct {
	State *os.ProcessState
	// Will is the newest that it had made, nil if there is none.
	Will *transport.Will
	// secret proves the death to the peers. No other process has it before Tell sends it.
	secret transport.Secret
}

// patience is for how long an obituary is told. Shorter: a peer that is slow waits until its
// promise has ended. Longer: the member is started again later.
const patience = time.Second

// Announce tells all peers, as the member would: peers is what it has for TLS with them. What is needed
// is read now, since certificates may have changed, and until now this process was to be small. It
// returns after twice the patience at the latest: a log that nobody reads, or a file that cannot
// be read, must not keep the member from being started again.
func (d *Death) Announce(peers tlsconf.Config, log *slog.Logger) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.announce(peers, log)
		log.Info("the member has died", "how", d.State.String()) // last: the peers wait, and the log may, too
	}()
	select {
	case <-done:
	case <-time.After(2 * patience):
	}
}

func (d *Death) announce(peers tlsconf.Config, log *slog.Logger) {
	source, err := tlsconf.New(peers)
	if err != nil {
		log.Warn("no peer is told that the member has died", "error", err)
		return
	}
	var dial tlsconf.DialFunc
	if source != nil {
		dial = source.Dialer(nil)
	}
	d.Tell(dial, log)
}

// Tell tells all peers, at all of their addresses at once, and returns when they know it, or after
// a second. dial is nil for TCP without TLS.
func (d *Death) Tell(dial tlsconf.DialFunc, log *slog.Logger) {
	if d.Will == nil {
		return // it has connected to nobody
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, peer := range d.Will.Peers {
		for _, addr := range peer.Addrs {
			wg.Go(func() {
				if err := transport.Bury(ctx, dial, addr, peer.ID, d.Will.Hello, d.secret); err != nil {
					log.Warn("a peer was not told that the member has died", "peer", transport.ID(peer.ID), "addr", addr, "error", err)
					return
				}
				log.Info("a peer knows that the member has died", "peer", transport.ID(peer.ID), "addr", addr)
			})
		}
	}
	wg.Wait()
}

// wills are those that a child makes.
type wills struct {
	newest atomic.Pointer[transport.Will]
	done   chan struct{} // closed when there will be none any more
}

// lastWords is for how long the rest of a dead child's will is read: it is there already.
const lastWords = 50 * time.Millisecond

// readWills keeps the newest of the wills that come from r. One that is cut off counts for nothing.
func readWills(r io.Reader) *wills {
	w := &wills{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for decoder := json.NewDecoder(r); ; {
			will := &transport.Will{}
			if decoder.Decode(will) != nil {
				return
			}
			w.newest.Store(will)
		}
	}()
	return w
}

func (w *wills) last() *transport.Will {
	select {
	case <-w.done:
	case <-time.After(lastWords):
	}
	return w.newest.Load()
}
