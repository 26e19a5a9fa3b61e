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

// peer is another member: its links, its addresses and its counters.
type peer struct {
	t      *Transport
	id     uint64
	hexID  string // the ID, in metrics
	ctx    context.Context
	cancel context.CancelCauseFunc
	links  [2]*link // control and bulk

	addrs atomic.Pointer[[]string]
	// sending is set while a snapshot is under way.
	sending atomic.Bool
	// losses holds a token if messages were lost since the last call of
	// Unreachable.
	losses chan struct{}
	counts counts
	// logLimit limits log lines about the peer's messages.
	logLimit rate.Sometimes
}

func newPeer(t *Transport, id uint64, addrs []string) *peer {
	p := &peer{
		t: t, id: id, hexID: ID(id),
		losses:   make(chan struct{}, 1),
		logLimit: rate.Sometimes{First: 1, Interval: 10 * time.Second},
	}
	p.counts.roundTrips = durations.New(roundTripBounds)
	p.ctx, p.cancel = context.WithCancelCause(t.ctx)
	p.setAddrs(addrs)
	p.links = [2]*link{newLink(p, control, t.limits.maxWait), newLink(p, bulk, 0)}
	return p
}

func (p *peer) setAddrs(addrs []string) {
	if old := p.addrs.Load(); old != nil && slices.Equal(*old, addrs) {
		return
	}
	p.addrs.Store(new(slices.Clone(addrs)))
	for _, l := range p.links {
		if l != nil {
			l.retryNow()
		}
	}
}

// send queues one message for the peer.
func (p *peer) send(m *raftpb.Message) {
	kind := streamOf(m.GetType())
	if kind == snapshots {
		// A MsgSnap must not come here. Without a state SendSnapshot fails, and reports that (SnapshotSent), because
		// raft waits for the result.
		p.t.SendSnapshot(m, nil)
		return
	}
	if m.GetFrom() != p.t.self {
		if m = restamp(m, p.t.self); m == nil {
			p.links[kind].countLost(1)
			return
		}
	}
	p.links[kind].send(m)
}

// restamp returns m as a message of this member, or nil if that changes its meaning. Raft forwards messages to the
// leader with the original sender in From (raft.go, stepFollower), and peers refuse a foreign From. For a proposal,
// From does not matter. The response to a read would go to this member instead of the sender.
func restamp(m *raftpb.Message, self uint64) *raftpb.Message {
	if m.GetType() != raftpb.MsgProp {
		return nil
	}
	return &raftpb.Message{Type: m.Type, To: m.To, From: new(self), Entries: m.GetEntries()}
}

// signalLoss makes reportLosses call Unreachable.
func (p *peer) signalLoss() {
	select {
	case p.losses <- struct{}{}:
	default:
	}
}

// reportLosses calls Unreachable soon after a loss, but at most once in limits.lossInterval. A loss in between
// is reported after that time.
func (p *peer) reportLosses() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.losses:
			p.t.cfg.Handler.Unreachable(p.id)
		}
		if !sleep(p.ctx, p.t.limits.lossInterval, nil) {
			return
		}
	}
}

// sleep waits for d or for a token of wake. It returns false if ctx ends first.
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

// stream is a kind of connection. The packet that opens the connection has the kind stream + 1.
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

// streamOf returns the stream for messages of type t. Messages that may be large
// do not use the control stream.
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

// reservedID reports whether raft reserves id.
func reservedID(id uint64) bool { return id == raft.None || raft.IsLocalMsgTarget(id) }

// ID formats the ID of a member or a cluster, as etcd does.
func ID(id uint64) string { return strconv.FormatUint(id, 16) }

// noDelay sets TCP_NODELAY, also below TLS.
func noDelay(c net.Conn) {
	if u, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = u.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // after an error the next write fails
	}
}

// isClosed reports whether err only says that this end closed the connection.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// broken adds to err what the connection was doing.
func broken(doing string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the peer closed the connection", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// jittered reduces d by up to a half, so that members do not retry in step.
func jittered(d time.Duration, random float64) time.Duration {
	return d - time.Duration(random*float64(d)/2)
}
