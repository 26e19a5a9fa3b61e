package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"

	"github.com/leaderlease/go/internal/durations"
)

// peer is one other member: what is sent to it, and what is counted of it.
type peer struct {
	t      *Transport
	id     uint64
	name   string // of the ID, in logs
	ctx    context.Context
	cancel context.CancelCauseFunc
	links  [2]*link // control and bulk

	addrs atomic.Pointer[[]string]
	// sending is whether a snapshot is under way.
	sending atomic.Bool
	// losses holds a token if messages were lost since Unreachable was called.
	losses chan struct{}
	counts counts
	// complain limits what is logged about the peer's messages.
	complain rate.Sometimes
}

func newPeer(t *Transport, id uint64, addrs []string) *peer {
	p := &peer{
		t: t, id: id, name: ID(id),
		losses:   make(chan struct{}, 1),
		complain: rate.Sometimes{First: 1, Interval: 10 * time.Second},
	}
	p.counts.roundTrips = durations.New(roundTripBounds)
	p.ctx, p.cancel = context.WithCancelCause(t.ctx)
	p.setAddrs(addrs)
	p.links = [2]*link{newLink(p, control, t.limits.hold), newLink(p, bulk, 0)}
	return p
}

func (p *peer) setAddrs(addrs []string) {
	if old := p.addrs.Load(); old != nil && slices.Equal(*old, addrs) {
		return
	}
	p.addrs.Store(new(slices.Clone(addrs)))
	for _, l := range p.links {
		if l != nil {
			l.hurry()
		}
	}
}

// send queues one message for the peer.
func (p *peer) send(m *raftpb.Message) {
	kind := streamOf(m.GetType())
	if kind == snapshots {
		// Raft waits for a report, so a slip must not stall it for ever.
		p.t.SendSnapshot(m, nil)
		return
	}
	if m.GetFrom() != p.t.self {
		if m = restamp(m, p.t.self); m == nil {
			p.links[kind].lose(1)
			return
		}
	}
	p.links[kind].send(m)
}

// restamp makes a message of another member this one's, as far as that means
// the same, and returns nil if not. Raft passes on what it took for the leader
// under the name of the member that sent it (raft.go, stepFollower), and peers
// refuse messages in the name of others. The author of a proposal does not
// matter; the answer to a read would go to the wrong member.
func restamp(m *raftpb.Message, self uint64) *raftpb.Message {
	if m.GetType() != raftpb.MsgProp {
		return nil
	}
	return &raftpb.Message{Type: m.Type, To: m.To, From: new(self), Entries: m.GetEntries()}
}

// lost remembers that messages were lost; report passes it on.
func (p *peer) lost() {
	select {
	case p.losses <- struct{}{}:
	default:
	}
}

// report calls Unreachable for losses: soon after the first, and after the last,
// but not for each.
func (p *peer) report() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.losses:
			p.t.cfg.Handler.Unreachable(p.id)
		}
		if !sleep(p.ctx, p.t.limits.lost, nil) {
			return
		}
	}
}

// sleep waits until d has passed or wake delivers, and reports whether ctx is
// still alive.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// stream is a kind of connection. Its number is on the wire, plus one.
type stream uint8

const (
	control stream = iota
	bulk
	snapshots
	numStreams
)

var streamNames = [numStreams]string{"control", "bulk", "snapshot"}

func (s stream) String() string {
	if s < numStreams {
		return streamNames[s]
	}
	return "stream " + strconv.Itoa(int(s))
}

// streamOf returns the stream that carries messages of a type. What may be large
// is not control.
func streamOf(t raftpb.MessageType) stream {
	switch t {
	case raftpb.MsgApp, raftpb.MsgProp:
		return bulk
	case raftpb.MsgSnap:
		return snapshots
	default:
		return control
	}
}

// reservedID reports whether raft gives id a meaning of its own.
func reservedID(id uint64) bool { return id == raft.None || raft.IsLocalMsgTarget(id) }

// ID is how the ID of a member or a cluster looks to people, as etcd's.
func ID(id uint64) string { return strconv.FormatUint(id, 16) }

// noDelay sends small messages at once, also below TLS.
func noDelay(c net.Conn) {
	if u, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = u.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // a connection that fails here fails at the next write
	}
}

// isClosed reports whether err only says that this end has closed.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// broken explains err, which ended a connection that was doing something.
func broken(doing string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the peer closed the connection", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// jittered returns d less up to a half, so that members do not move in step.
func jittered(d time.Duration, random float64) time.Duration {
	return d - time.Duration(random*float64(d)/2)
}
