// Package transport carries raft messages between the members of a cluster.
//
// # What it promises
//
//   - Heartbeats, votes and their responses never wait behind log entries or
//     snapshots. Each member dials each peer for the messages that it sends. There
//     are three kinds of streams, each with its own connection: control messages,
//     bulk messages, and a snapshot.
//   - Send never blocks, and memory is bounded. The queues of a peer that does
//     not read fill up. The transport drops and counts messages for a full
//     queue, and calls Handler.Unreachable.
//   - Messages of one stream to one peer arrive in the order in which they were
//     sent, each at most once. Raft tolerates losses, and reordering between streams.
//   - Handler.Receive gets only messages that Validate accepts. If the handler also
//     calls ValidateAgainst, no single peer can make raft panic (with the exceptions named there).
//   - The receiver reads a snapshot to its end only if it is unchanged: each
//     chunk has a checksum, and a SHA-256 of the whole state follows.
//
// # What it relies on
//
// Config.Authenticate authenticates peers, over connections that Config.Listener and Config.Dial secure with TLS.
// Without it, the handshake only compares the IDs of clusters and members. That finds mistakes in configurations, but
// stops no attacker.
//
// # On the wire
//
// A connection begins with one packet (wire.go) in each direction. The dialler
// sends its Hello. The acceptor answers with its own Hello or with a Refusal.
// Frames follow (wire.go): each holds one raft message, or nothing, which is a
// ping. A snapshot's connection carries one frame, then the state in chunks
// (chunks.go). Two other kinds of packets begin a connection without a stream: the
// request for the member list (memberlist.go) and the death notice (deathnotice.go).
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

	"github.com/leaderlease/go/kvnode/internal/connlimit"
)

// Transport connects one member to its peers. All its methods are safe for
// concurrent use.
type Transport struct {
	cfg       Config
	limits    limits
	self      uint64
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	connLimit *connlimit.Port // limits the connections that have not sent a hello
	totals    totals

	// The map in peers is immutable. SetPeer and RemovePeer replace it under mu, so that Send needs no lock.
	peers atomic.Pointer[map[uint64]*peer]

	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		closed bool
		// inbound holds the newest connection of each stream of each peer.
		inbound map[slot]*inbound
		// removals counts calls of RemovePeer: see admit.
		removals uint64
		// reading holds a semaphore for each slot that has a connection or a reader.
		reading map[slot]chan struct{}
		// processes is kept for each peer, and for each other member that is connected: see detectDuplicate.
		processes map[uint64]*memberProcesses
	}
}

// Start serves cfg.Listener in the background. The Transport closes the
// listener. It has no peers until SetPeer adds them.
func Start(cfg Config) (*Transport, error) { return start(cfg, defaultLimits()) }

func start(cfg Config, lim limits) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "transport")
	if half := cfg.Hello.Promise / 2; half > 0 {
		// A heartbeat that waited longer would hardly renew a lease.
		lim.maxWait = min(lim.maxWait, half)
	}
	t := &Transport{cfg: cfg, limits: lim, self: cfg.Hello.From}
	t.connLimit = connlimit.New(connlimit.Config{Name: "peer", MaxPending: lim.pending, Logger: cfg.Logger})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.inbound = make(map[slot]*inbound)
	t.mu.reading = make(map[slot]chan struct{})
	t.mu.processes = make(map[uint64]*memberProcesses)
	t.totals.logLimit, t.totals.connectLog = newLogLimit(), newLogLimit()
	t.peers.Store(&map[uint64]*peer{})
	t.wg.Go(t.accept)
	return t, nil
}

// SetPeer adds a peer, or replaces its addresses (host:port). The transport
// tries them in turn. Existing connections are kept. The member itself and the
// IDs that raft reserves are not peers: SetPeer logs an error and ignores them.
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
	t.wg.Go(p.reportLosses)
	for _, l := range p.links {
		t.wg.Go(l.run)
	}
}

// RemovePeer removes a peer and closes its connections in both directions. A
// snapshot under way to it fails. Handler.Admit decides whether the peer may
// connect again.
func (t *Transport) RemovePeer(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.removals++
	delete(t.mu.processes, id)
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

// Send queues messages without blocking. It drops a message if the queue is full or the peer is not connected, but
// control messages wait up to limits.maxWait for a connection. Handler.Unreachable reports the loss from another
// goroutine. The caller must not change the messages any more. MsgSnap must go through SendSnapshot.
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

// Flush waits for at most d until the control messages to a peer are written,
// and reports whether they are. Messages that are lost because a connection ends
// count as written.
func (t *Transport) Flush(to uint64, d time.Duration) bool {
	p := t.peer(to)
	if p == nil {
		return false
	}
	for end := time.Now().Add(d); ; time.Sleep(time.Millisecond) {
		if left, _ := p.links[control].queue.usage(); left == 0 {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
	}
}

// Takes reports whether Send would queue m for a peer now, and not drop it.
func (t *Transport) Takes(to uint64, m *raftpb.Message) bool {
	kind := streamOf(m.GetType())
	p := t.peer(to)
	return p != nil && kind != snapshots && p.links[kind].queue.accepts(sizeOf(m))
}

// Close ends all connections and waits for every goroutine. So no method of
// Handler may wait for Close. Snapshots under way fail: SnapshotSent is called
// before Close returns.
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

// spawn runs f in a goroutine, or returns false if the transport is closed.
func (t *Transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// peer returns the peer with the given ID, or nil.
func (t *Transport) peer(id uint64) *peer { return (*t.peers.Load())[id] }

var (
	errRemoved = errors.New("peer was removed")
	errClosed  = errors.New("transport is closed")
)
