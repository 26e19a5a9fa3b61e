// Package transport carries raft messages between the members of a cluster.
//
// # What it promises
//
//   - Heartbeats, votes and their answers never wait behind log entries or
//     snapshots: each member dials each peer for what it sends, over one
//     connection for control messages, one for bulk messages, and one for each
//     snapshot.
//   - Send never blocks and memory is bounded: a peer that does not read fills
//     its queues, and what finds a queue full is lost, counted, and reported
//     with Handler.Unreachable.
//   - Messages of one stream to one peer arrive in the order in which they were
//     sent, each at most once. Raft tolerates every other loss and reordering.
//   - Nothing reaches Handler.Receive that Validate refuses, so no message of a
//     single peer can make raft panic (see also ValidateAgainst).
//   - A snapshot reaches its end at the receiver only as it left the sender:
//     checksums run along and a SHA-256 closes it.
//
// # What it relies on
//
// Peers are authenticated by Config.Authenticate, over connections that
// Config.Listener and Config.Dial secure with TLS. Without it the handshake tells
// members and clusters apart; it keeps out the misconfigured, not the malicious.
//
// # On the wire
//
// A connection begins with a packet (packet.go) from the dialler, a Hello, and
// one from the acceptor, its own Hello or a refusal. Frames follow (frame.go):
// one raft message each, or none, which asks for a sign of life. A snapshot's
// connection carries one frame, then the state in chunks (chunks.go).
package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
)

// Transport connects one member to its peers. All its methods are safe for
// concurrent use.
type Transport struct {
	cfg    Config
	limits limits
	self   uint64
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	pace   *rate.Limiter   // of snapshots, nil if unlimited
	port   *connlimit.Port // limits the connections that have not said hello
	totals totals

	// peers is replaced whole, under mu, so that Send finds a peer without a
	// lock.
	peers atomic.Pointer[map[uint64]*peer]

	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		closed bool
		// inbound are the connections that peers have made, one for each of their
		// streams. removals counts calls of RemovePeer: see admit.
		inbound  map[slot]*inbound
		removals uint64
		// turns are kept for ever: there are three for each member ever admitted.
		turns map[slot]chan struct{}
		// processes are kept for ever, too: see notice.
		processes map[uint64]*processes
	}
}

// Start serves cfg.Listener and returns. There are no peers yet. The Transport
// closes the listener.
func Start(cfg Config) (*Transport, error) { return start(cfg, defaultLimits()) }

func start(cfg Config, lim limits) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "transport")
	if half := cfg.Hello.Promise / 2; half > 0 {
		lim.hold = min(lim.hold, half) // what is older renews no lease, and its votes are others' by then
	}
	t := &Transport{cfg: cfg, limits: lim, self: cfg.Hello.From}
	t.port = connlimit.New(connlimit.Config{Name: "peer", MaxPending: lim.pending, Logger: cfg.Logger})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.inbound = make(map[slot]*inbound)
	t.mu.turns = make(map[slot]chan struct{})
	t.mu.processes = make(map[uint64]*processes)
	t.totals.complain, t.totals.came = seldom(), seldom()
	t.peers.Store(&map[uint64]*peer{})
	if cfg.SnapshotRate > 0 {
		t.pace = rate.NewLimiter(rate.Limit(cfg.SnapshotRate), t.chunkSize())
	}
	t.wg.Go(t.accept)
	return t, nil
}

// SetPeer adds a peer, or gives it other addresses (host:port, tried in turn).
// Connections that exist are kept. The member itself is not a peer; nor are the
// IDs that raft keeps for its storage threads.
func (t *Transport) SetPeer(id uint64, addrs []string) {
	if id == t.self || reservedID(id) {
		t.cfg.Logger.Error("not a peer", "peer", ID(id))
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return
	}
	old := *t.peers.Load()
	if p := old[id]; p != nil {
		p.setAddrs(addrs)
		return
	}
	p := newPeer(t, id, addrs)
	peers := maps.Clone(old)
	peers[id] = p
	t.peers.Store(&peers)
	t.wg.Go(p.report)
	for _, l := range p.links {
		t.wg.Go(l.run)
	}
}

// RemovePeer forgets a peer and closes its connections both ways. A snapshot
// under way to it fails. Whether the peer may come back is for Handler.Admit to
// say.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.removals++
	peers := maps.Clone(*t.peers.Load())
	if p := peers[id]; p != nil {
		p.cancel(errRemoved)
		delete(peers, id)
		t.peers.Store(&peers)
	}
	for s, in := range t.mu.inbound {
		if s.from == id {
			in.cancel()
		}
	}
}

// Send queues messages without blocking. A message that finds its queue full,
// or its peer away, is lost and Unreachable is called (not from within Send).
// Messages must not be changed any more. MsgSnap must go through SendSnapshot.
func (t *Transport) Send(msgs []*raftpb.Message) {
	peers := *t.peers.Load()
	for _, m := range msgs {
		p := peers[m.GetTo()]
		if p == nil {
			t.totals.unaddressed.Add(1)
			continue
		}
		p.send(m)
	}
}

// Flush waits until what was sent to a peer on the stream of heartbeats and votes is written,
// for at most d, and reports whether it is. What a connection takes with it that ends counts
// as written.
func (t *Transport) Flush(to uint64, d time.Duration) bool {
	p := t.peer(to)
	if p == nil {
		return false
	}
	for end := time.Now().Add(d); ; time.Sleep(time.Millisecond) {
		if left, _ := p.links[control].queue.held(); left == 0 {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// Takes reports whether Send would queue m for a peer now, or lose it.
func (t *Transport) Takes(to uint64, m *raftpb.Message) bool {
	kind := streamOf(m.GetType())
	p := t.peer(to)
	return p != nil && kind != snapshots && p.links[kind].queue.takes(sizeOf(m))
}

// Close ends all connections and waits for every goroutine, hence for every
// call of Handler under way: those must not wait for Close. Snapshots under way
// fail, and SnapshotSent says so before Close returns.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.cancel()
	err := t.cfg.Listener.Close()
	t.wg.Wait()
	if err != nil && !isClosed(err) {
		return fmt.Errorf("transport: close listener: %w", err)
	}
	return nil
}

// spawn runs f unless the transport is closed, and reports whether it does.
func (t *Transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// peer returns the peer with the given ID, nil if there is none.
func (t *Transport) peer(id uint64) *peer { return (*t.peers.Load())[id] }

var (
	errRemoved = errors.New("peer was removed")
	errClosed  = errors.New("transport is closed")
)
