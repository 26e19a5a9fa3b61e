// Package supervisor runs a member as a child process and notifies the member's peers when the
// child has exited. They can elect a leader at once then: they need not wait until their promises
// to the dead process expire (rule V8 of docs/design.md).
//
// # What it promises
//
//   - A death notice is sent only for the supervisor's own child, after the system has reported
//     (wait4, for that process ID) that it has exited or was killed. A child that is stopped, that
//     has closed its connection, or for which the supervisor cannot wait, is not dead.
//   - A notice carries a secret that the supervisor has drawn for that child and has kept to
//     itself. The child, and with it each peer, knows only the process ID, which is a hash of the
//     secret. The next child gets a new secret.
//   - The child dies with its supervisor.
//
// # What it relies on
//
// A process that has exited never executes another instruction. Do not use a supervisor where a
// process can be restored: with checkpoint and restore, with clones of a running machine, or with a
// debugger that restarts it. A false notice can lead to a second leader beside a valid lease.
// docs/operations/change.md lists the cases.
//
// Run is the parent's half, Connect the child's. They use a socket pair that the child inherits as
// a file. An environment variable would not do, because the child's own children would inherit it.
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

// Exit is the end of a child process.
type Exit struct {
	State *os.ProcessState
	// peers is the last list that the child sent, or nil.
	peers *transport.PeersToNotify
	// secret proves the death to the peers. No other process knows it before notify sends it.
	secret transport.Secret
}

// notifyTime limits the time to notify the peers. A peer that a notice does not reach in time waits until its promise
// expires. The restart of the member is delayed by at most twice this time. A child waits as long for the greeting.
const notifyTime = time.Second

// NotifyPeers sends death notices to all peers, with the member's own TLS configuration. It reads
// the certificates only now: they may have changed, and the supervisor uses little memory before.
// It returns after twice notifyTime at the latest, even if a log or a file blocks: the member must
// be started again.
func (e *Exit) NotifyPeers(peerTLS tlsconf.Config, log *slog.Logger) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.loadAndNotify(peerTLS, log)
		log.Info("the member has exited", "how", e.State.String()) // after the notices, because the log may block
	}()
	select {
	case <-done:
	case <-time.After(2 * notifyTime):
	}
}

func (e *Exit) loadAndNotify(peerTLS tlsconf.Config, log *slog.Logger) {
	source, err := tlsconf.New(peerTLS)
	if err != nil {
		log.Warn("cannot notify the peers that the member has exited", "error", err)
		return
	}
	var dial tlsconf.DialFunc
	if source != nil {
		dial = source.Dialer(nil)
	}
	e.notify(dial, log)
}

// notify sends notices to all addresses of all peers at once. It returns when all have answered, or
// after notifyTime. dial is nil for TCP without TLS.
func (e *Exit) notify(dial tlsconf.DialFunc, log *slog.Logger) {
	if e.peers == nil {
		return // the child has connected to no peer
	}
	ctx, cancel := context.WithTimeout(context.Background(), notifyTime)
	defer cancel()
	var wg sync.WaitGroup
	for _, peer := range e.peers.Peers {
		for _, addr := range peer.Addrs {
			wg.Go(func() {
				if err := transport.SendDeathNotice(ctx, dial, addr, peer.ID, e.peers.Hello, e.secret); err != nil {
					log.Warn("cannot notify a peer that the member has exited", "peer", transport.ID(peer.ID), "addr", addr, "error", err)
					return
				}
				log.Info("notified a peer that the member has exited", "peer", transport.ID(peer.ID), "addr", addr)
			})
		}
	}
	wg.Wait()
}

// peerLists receives the lists of peers that a child sends.
type peerLists struct {
	newest atomic.Pointer[transport.PeersToNotify]
	done   chan struct{} // closed when no other list can come
}

// drainTime limits the wait for the lists of a dead child, which are already in the socket.
const drainTime = 50 * time.Millisecond

// readPeers keeps the newest complete list from r.
func readPeers(r io.Reader) *peerLists {
	l := &peerLists{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for decoder := json.NewDecoder(r); ; {
			list := &transport.PeersToNotify{}
			if decoder.Decode(list) != nil {
				return
			}
			l.newest.Store(list)
		}
	}()
	return l
}

// last returns the newest list of a dead child, or nil.
func (l *peerLists) last() *transport.PeersToNotify {
	select {
	case <-l.done:
	case <-time.After(drainTime):
	}
	return l.newest.Load()
}
