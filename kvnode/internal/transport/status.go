package transport

import (
	"maps"
	"slices"
	"time"
)

// PeerStatus is what is known of the links to one peer.
type PeerStatus struct {
	ID uint64
	// Connected is whether this member's control stream to the peer is up, Since
	// when that began.
	Connected  bool
	Since      time.Time
	LastError  string // of the newest attempt or connection that failed, any stream
	Hello      Hello  // what the peer said last
	Sent, Lost uint64 // messages
	RTT        time.Duration
	Streams    []StreamStatus
	// Invalid counts the peer's messages that were refused.
	Invalid uint64
}

// StreamStatus is what is known of one stream to, and from, a peer.
type StreamStatus struct {
	Name      string // control, bulk, snapshot
	Connected bool
	// Sent and Received count messages; SentBytes and ReceivedBytes what went over
	// the wire for them. Lost are messages that were not written.
	Sent, SentBytes, Lost   uint64
	Received, ReceivedBytes uint64
	// Connects counts how often this member has connected to the peer.
	Connects uint64
	// Queued messages wait or are being written; QueuedBytes is an estimate of
	// the memory they hold.
	Queued, QueuedBytes int
}

// Peers returns the state of all links, by ID.
func (t *Transport) Peers() []PeerStatus {
	peers := *t.peers.Load()
	all := make([]PeerStatus, 0, len(peers))
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		all = append(all, peers[id].status())
	}
	return all
}

func (p *peer) status() PeerStatus {
	c := p.links[control].status()
	s := PeerStatus{
		ID: p.id, Connected: c.connected, Since: c.since, LastError: c.lastErr,
		Hello: c.hello, RTT: c.rtt, Invalid: p.counts.invalid.Load(),
	}
	if s.LastError == "" {
		s.LastError = p.links[bulk].status().lastErr
	}
	for kind := range numStreams {
		one := p.stream(kind)
		s.Sent += one.Sent
		s.Lost += one.Lost
		s.Streams = append(s.Streams, one)
	}
	return s
}

func (p *peer) stream(kind stream) StreamStatus {
	out, in := &p.counts.out[kind], &p.counts.in[kind]
	s := StreamStatus{
		Name: kind.String(),
		Sent: out.sent.Load(), SentBytes: out.sentBytes.Load(), Lost: out.lost.Load(),
		Received: in.received.Load(), ReceivedBytes: in.receivedBytes.Load(),
		Connects: out.connects.Load(),
	}
	if kind == snapshots {
		s.Connected = p.sending.Load()
		return s
	}
	s.Connected = p.links[kind].status().connected
	s.Queued, s.QueuedBytes = p.links[kind].queue.held()
	return s
}

func (l *link) status() linkState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state
}
