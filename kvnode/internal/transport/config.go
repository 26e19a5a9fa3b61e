package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
)

// Config configures a Transport. To add TLS, pass a Listener and a Dial that
// speak it, and an Authenticate that knows whose certificate is whose.
type Config struct {
	Hello    Hello // of this member; To and Hold are filled in each time
	Listener net.Listener
	Handler  Handler
	// Hold returns Hello.Hold as of now. Default: 0.
	Hold func() time.Duration
	// Roster says who is in the cluster, for members that want to join. Optional.
	Roster func() (Roster, error)
	// Called names a member in log lines. Default: its ID.
	Called func(id uint64) string
	// Dial connects to a peer's address, host:port. Default: net.Dialer over TCP. Tests pass
	// in-memory links.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// SnapshotRate bounds what all snapshots together send, in bytes a second.
	// Default: 0, no bound. A low bound delays members that are far behind; none
	// lets a snapshot take the whole network.
	SnapshotRate int64
	// Authenticate checks that the other end of a connection is the member that it
	// says it is. It is asked for each connection, whoever has made it, before
	// Handler hears of it; its error, which may be a *Refusal, goes to the other end if
	// that has dialled. Validate then binds the sender of each message to the member.
	// What h says beside the IDs nobody has checked, and of a member that was dialled
	// it holds no more than they. Default: what the other end says is believed.
	Authenticate func(c net.Conn, h Hello) error
	// Logger takes what operators should know. Default: nothing is logged.
	Logger *slog.Logger
}

// WithDefaults returns a copy of c with defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Dial == nil {
		dialer := &net.Dialer{}
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}
	}
	if c.Hold == nil {
		c.Hold = func() time.Duration { return 0 }
	}
	if c.Called == nil {
		c.Called = ID
	}
	if c.Authenticate == nil {
		c.Authenticate = func(net.Conn, Hello) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if reservedID(c.Hello.From) {
		errs = append(errs, fmt.Errorf("member ID %#x is reserved by raft", c.Hello.From))
	}
	if err := c.Hello.Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Hello.ClusterID == 0 {
		errs = append(errs, errors.New("cluster ID 0 is not one"))
	}
	if c.Listener == nil {
		errs = append(errs, errors.New("a listener is needed"))
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("a handler is needed"))
	}
	if c.SnapshotRate < 0 {
		errs = append(errs, fmt.Errorf("snapshot rate %d must not be negative", c.SnapshotRate))
	}
	if len(errs) > 0 {
		return fmt.Errorf("transport: invalid config: %w", errors.Join(errs...))
	}
	return nil
}

// limits are the bounds that tests vary. The product uses defaultLimits.
type limits struct {
	// dial bounds one attempt to connect, handshake what follows it.
	dial, handshake time.Duration
	// The wait after a failed attempt doubles from retryMin to retryMax, and from
	// refusedMin to refusedMax where the peer itself refuses. A connection that
	// held for retryMax begins anew.
	retryMin, retryMax     time.Duration
	refusedMin, refusedMax time.Duration
	// hold is how long control messages outlive the lack of a connection: half of a promise,
	// if that is less.
	hold time.Duration
	// lost is the least time between two calls of Unreachable for one peer.
	lost time.Duration
	// pending is the number of connections that have not said hello yet.
	pending int
	// stall is how long either end of a snapshot waits for the other to move.
	// Every second the receiver says that it is still at work.
	stall, working time.Duration
	streams        [2]streamLimits
}

// streamLimits are the limits of one stream to one peer.
type streamLimits struct {
	count, bytes int // of the queue, including what is being written
	// A ping is sent each period; without an answer within timeout the
	// connection is given up, as by the acceptor if it hears nothing at all.
	ping, timeout time.Duration
	write         time.Duration // one write may take
}

func defaultLimits() limits {
	_, pending := connlimit.Files(connlimit.MaxFiles())
	return limits{
		dial: 2 * time.Second, handshake: 5 * time.Second,
		retryMin: 10 * time.Millisecond, retryMax: time.Second,
		refusedMin: 500 * time.Millisecond, refusedMax: 5 * time.Second,
		hold: 500 * time.Millisecond, lost: 100 * time.Millisecond,
		pending: pending, stall: 30 * time.Second, working: time.Second,
		streams: [2]streamLimits{
			control: {count: 4096, bytes: 4 << 20, ping: time.Second, timeout: 5 * time.Second, write: 5 * time.Second},
			// A receiver may block for long while its disk does, and holds up the
			// answers to pings on this stream.
			bulk: {count: 4096, bytes: 64 << 20, ping: 5 * time.Second, timeout: 30 * time.Second, write: 30 * time.Second},
		},
	}
}
