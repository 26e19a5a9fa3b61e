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
	// maxWait is how long anybody waits for its turn. A connection in debt is closed if
	// it would have to wait longer, others jump the queue: their resets are bounded
	// by how many streams may be half a second old. Longer: the more connections
	// flood, the longer each is there, and clients whose deadlines have passed wait
	// for each other.
	maxWait = 300 * time.Millisecond
	// A server that has answered nobody for muteTime closes nobody, and who owes
	// something waits for up to maxMuteWait. Longer, the former: clients with short
	// deadlines lose their connections when the member stalls. Shorter: floods of a
	// server with few clients are slowed down only.
	muteTime    = 300 * time.Millisecond
	maxMuteWait = 2 * time.Second
	// maxStuck is for how long a write may be under way while requests are handed on.
	// Longer: whoever takes no answers has more of them made. Shorter: who takes large
	// ones over a slow line asks more slowly.
	maxStuck = 100 * time.Millisecond
	// maxLeft is how many open streams a connection may reset, of which gRPC may keep
	// the answers until its writer gets to them. If writes take longer than slowWrite
	// nothing is handed on then until there was a pause between two, or perLeft bytes
	// are written: whoever takes 32 KB every 20 ms is not stuck. More of the first or
	// the second, or less of the last: members keep up to 300 MB for a connection.
	// Otherwise: clients behind slow lines whose deadlines have passed ask more slowly.
	// Shorter pauses: any preemption is one.
	maxLeft   = 100
	slowWrite = 200 * time.Microsecond
	perLeft   = 64 << 10
	pause     = 10 * time.Millisecond
)

// ErrFlood is why a connection was closed.
var ErrFlood = errors.New("kvnode: the connection floods")

// Meter is what the connections of one server have in common. Its methods are safe
// for concurrent use.
type Meter struct {
	log       *slog.Logger  // immutable
	allowance *rate.Limiter // immutable: of those who may be closed
	patient   *rate.Limiter // immutable: of those who may not
	most      int64         // immutable: how many streams may be open
	began     time.Time     // immutable
	complain  *rate.Sometimes
	full      *rate.Sometimes

	open    atomic.Int64  // streams of all connections
	refused atomic.Uint64 // streams

	answers  atomic.Bool  // somebody was answered since it was last looked at
	answered atomic.Int64 // when that was seen, since began

	held, closed atomic.Uint64
}

// Counts is what a Meter has seen.
type Counts struct {
	// Frames are those that carried no request and were paid for by no answer.
	Frames uint64
	// Closed are the connections that were closed because of them.
	Closed uint64
	// Open streams there are, and Refused is how many have found no room.
	Open    int64
	Refused uint64
}

// New returns a Meter for a server on which at most so many streams may be open. It
// logs the connections that it closes or refuses, a few lines a minute.
func New(log *slog.Logger, most int) *Meter {
	return &Meter{
		log: log.With("component", "floodgate"), most: int64(most), allowance: rate.NewLimiter(perSecond, burst),
		patient: rate.NewLimiter(perSecond, burst), began: time.Now(),
		complain: &rate.Sometimes{First: 3, Interval: 10 * time.Second}, full: &rate.Sometimes{First: 3, Interval: 10 * time.Second},
	}
}

// Counts returns what has happened so far.
func (m *Meter) Counts() Counts {
	return Counts{Frames: m.held.Load(), Closed: m.closed.Load(), Open: m.open.Load(), Refused: m.refused.Load()}
}

// Conn returns a connection that counts what is read from and written to c, which
// speaks HTTP/2 and has said nothing yet. Of a member's, which passes on what its
// clients do, it slows floods down only. One goroutine may read while another
// writes.
func (m *Meter) Conn(c net.Conn, member func() bool) net.Conn {
	now := time.Now()
	r := &conn{Conn: c, meter: m, member: member, closed: make(chan struct{}), pen: make(chan struct{}, 1)}
	r.streams.meter = m
	r.in.skip = prefaceLen
	r.balance, r.reckoned = startCredit, now
	r.ages.seen, r.ages.marked = now, now
	return r
}

// turn returns how long n frames have to wait for their turn, and whether that
// would be longer than most: then it is most, and they take nobody's turn.
func turn(allowance *rate.Limiter, now time.Time, n int64, most time.Duration) (wait time.Duration, late bool) {
	if n == 0 {
		return 0, false
	}
	r := allowance.ReserveN(now, int(min(n, burst)))
	if wait = r.DelayFrom(now); wait <= most {
		return wait, false
	}
	r.CancelAt(now)
	return most, true
}

// busy reports whether anybody waits for its turn.
func (m *Meter) busy(now time.Time) bool { return m.allowance.TokensAt(now) < 0 }

// mute reports whether the server has answered nobody for some time: it stalls, or
// nobody asks for an answer.
func (m *Meter) mute(now time.Time) bool {
	at := int64(now.Sub(m.began))
	if m.answers.Swap(false) {
		m.answered.Store(at)
	}
	return at-m.answered.Load() > int64(muteTime)
}

// refuse counts a connection that is to be closed, and says why.
func (m *Meter) refuse(c net.Conn, kind byte) error {
	m.closed.Add(1)
	m.complain.Do(func() {
		m.log.Warn("connection closed: its client resets streams, or sends frames that are no requests, faster than it is answered",
			"remote", c.RemoteAddr().String(), "frame", name(kind), "closed", m.closed.Load())
	})
	return fmt.Errorf("%w: too many frames of type %s", ErrFlood, name(kind))
}
