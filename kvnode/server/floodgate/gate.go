package floodgate

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// perSecond is how many frames that nothing pays for all connections get
	// through together. More: a flood takes more of the processor, 10 µs for a
	// stream that is reset. Fewer: many clients whose deadlines pass at once wait.
	perSecond = 5_000
	// burst is how many of them need not wait at first.
	burst = 1_000
	// maxWait is how long who is in debt may wait for its turn, rather than be
	// closed. Longer: the more connections flood, the longer each is there.
	maxWait = 300 * time.Millisecond
	// unaware is how many streams too many a connection may have. Fewer: clients
	// that begin before they have heard of the limit wait, or are closed. More: as
	// many streams are kept that gRPC has refused, or ended, and not said so yet.
	unaware = 256
)

// ErrFlood is why a connection was closed.
var ErrFlood = errors.New("kvnode: the connection floods")

// Gate is what the connections of one server have in common. Its methods are safe
// for concurrent use.
type Gate struct {
	log       *slog.Logger  // immutable
	allowance *rate.Limiter // immutable
	streams   int64         // immutable: more than that at a time are a flood
	complain  *rate.Sometimes

	held, closed atomic.Uint64
}

// Counts is what a Gate has seen.
type Counts struct {
	// Frames are those that carried no request and were paid for by no answer.
	Frames uint64
	// Closed are the connections that were closed because of them.
	Closed uint64
}

// New returns a Gate for a server that tells clients how many streams they may
// have. It logs whom it closes, a few lines a minute.
func New(log *slog.Logger, streams uint32) *Gate {
	return &Gate{
		log: log, streams: int64(streams) + unaware, allowance: rate.NewLimiter(perSecond, burst),
		complain: &rate.Sometimes{First: 3, Interval: 10 * time.Second},
	}
}

// Counts returns what has happened so far.
func (g *Gate) Counts() Counts { return Counts{Frames: g.held.Load(), Closed: g.closed.Load()} }

// Conn returns a connection that counts what is read from and written to c, which
// speaks HTTP/2 and has said nothing yet. One goroutine may read while another
// writes.
func (g *Gate) Conn(c net.Conn) net.Conn {
	now := time.Now()
	r := &conn{Conn: c, gate: g, closed: make(chan struct{})}
	r.in.skip = prefaceLen
	r.balance, r.settled = startCredit, now
	r.ages.seen, r.ages.marked = now, now
	return r
}

// wait returns how long n frames have to wait for their turn, false if that is
// too long for a client in debt.
func (g *Gate) wait(now time.Time, n int64, inDebt bool) (time.Duration, bool) {
	r := g.allowance.ReserveN(now, int(min(n, burst)))
	d := r.DelayFrom(now)
	if inDebt && d > maxWait {
		r.CancelAt(now)
		return 0, false
	}
	return d, true
}

// refuse counts a connection that is to be closed, and says why.
func (g *Gate) refuse(c net.Conn, kind byte) error {
	g.closed.Add(1)
	g.complain.Do(func() {
		g.log.Warn("connection closed: its client resets streams, or sends frames that are no requests, faster than it is answered",
			"remote", c.RemoteAddr().String(), "frame", name(kind), "closed", g.closed.Load())
	})
	return fmt.Errorf("%w: too many frames of type %s", ErrFlood, name(kind))
}
