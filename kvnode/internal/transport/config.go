package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
)

// Config configures a Transport. For TLS, pass a Listener and a Dial that use
// it, and an Authenticate that checks certificates.
type Config struct {
	// Hello describes this member. The transport fills in To and Hold for each
	// connection.
	Hello    Hello
	Listener net.Listener
	Handler  Handler
	// Hold returns the present value of Hello.Hold. Default: 0.
	Hold func() time.Duration
	// MemberList returns the member list for members that want to join. Optional:
	// without it, requests for the list are refused.
	MemberList func() (MemberList, error)
	// MemberName returns the name of a member for log lines. Default: its ID.
	MemberName func(id uint64) string
	// Dial connects to a peer's address, host:port. Default: net.Dialer over TCP.
	// Tests pass in-memory links.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Authenticate checks that the other end of a connection is member h.From. It is called for each stream and
	// death notice, before any method of Handler. A caller that it has not accepted gets only the member list or a
	// refusal. If Authenticate rejects an inbound connection, the peer gets the error, which may be a *Refusal.
	// Other fields of h are not verified. For a dialled connection only the IDs are set. Default: every connection
	// is accepted.
	Authenticate func(c net.Conn, h Hello) error
	// Logger is for lines that operators read. Default: nothing is logged.
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
	if c.MemberName == nil {
		c.MemberName = ID
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
		errs = append(errs, errors.New("cluster ID must not be 0"))
	}
	if c.Listener == nil {
		errs = append(errs, errors.New("listener is missing"))
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("handler is missing"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("transport: invalid config: %w", errors.Join(errs...))
	}
	return nil
}

// Handler is the node that uses a transport. Its methods are called
// concurrently. Transport.Close waits for them to return.
type Handler interface {
	// Admit decides whether a peer may connect, and whether a death notice for its process is accepted. The error is
	// sent to the peer, which passes it to Refused. A *Refusal in the error's chain gives the reason.
	Admit(h Hello) error
	// Refused is called for each attempt to connect the control stream that peer refuses. err is a *RefusedError.
	Refused(peer uint64, err error)
	// Connected reports that peer has admitted this member, and the peer's hello.
	// It is called each time the control stream connects.
	Connected(peer uint64, h Hello)
	// Gone reports that the last connection on which peer sent messages was closed
	// by the peer, or by the end of its process. It is called after Receive has returned
	// for all messages of that connection.
	Gone(peer uint64)
	// Died reports a valid death notice for a process of peer. The handler must compare process with the IDs that
	// peer's connections have named. If it is one of them, that process will never execute another instruction. Any
	// other ID proves nothing. Messages that the process sent may still arrive at Receive.
	Died(peer uint64, process ProcessID)
	// Receive takes a message that Validate accepts. process is the
	// Hello.ProcessID of the connection that carried the message. While Receive
	// blocks, only this peer's stream of the same kind waits.
	Receive(m *raftpb.Message, process ProcessID)
	// ReceiveSnapshot takes a MsgSnap and its state. It returns nil once the state
	// is durable. After an error the sender's raft sends a snapshot again.
	// ReceiveSnapshot must read all size bytes. The last of them arrive after the
	// checksums were compared, so a complete state is undamaged. At most one call
	// is under way for each peer.
	ReceiveSnapshot(m *raftpb.Message, size int64, state io.Reader) error
	// Unreachable reports that messages to peer were lost. Two calls for a peer
	// are limits.lossInterval apart.
	Unreachable(peer uint64)
	// SnapshotSent reports the result of SendSnapshot. Until then raft may hold back entries for that peer.
	SnapshotSent(peer uint64, err error)
}

// State is the state of a snapshot to send (store.Snapshot).
type State interface {
	Size() int64
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

// limits are limits that tests vary. Start uses defaultLimits.
type limits struct {
	// dial limits one attempt to connect, handshake the handshake after it.
	dial, handshake time.Duration
	// The wait after a failed attempt doubles from retryMin to retryMax, or from
	// refusedMin to refusedMax if the peer refused. It starts again at the minimum
	// after a connection that lasted for retryMax.
	retryMin, retryMax     time.Duration
	refusedMin, refusedMax time.Duration
	// maxWait is how long a control message waits for a connection. Start lowers it to half of Hello.Promise.
	maxWait time.Duration
	// lossInterval is the minimum time between two calls of Unreachable for one peer.
	lossInterval time.Duration
	// pending is the maximum number of connections that have not sent a hello.
	pending int
	// stall is how long either end of a snapshot waits for progress of the other.
	// working is the interval in which the receiver sends answerWorking.
	stall, working time.Duration
	streams        [2]streamLimits
}

// streamLimits are the limits of one stream to one peer.
type streamLimits struct {
	count, bytes int // of the queue, including messages that are being written
	// ping is the interval of pings. The dialler closes the connection if a pong
	// takes longer than timeout, the acceptor if nothing arrives for ping+timeout.
	ping, timeout time.Duration
	write         time.Duration // limit of one write
}

func defaultLimits() limits {
	_, pending := connlimit.Files(connlimit.MaxFiles())
	return limits{
		dial: 2 * time.Second, handshake: 5 * time.Second,
		retryMin: 10 * time.Millisecond, retryMax: time.Second,
		refusedMin: 500 * time.Millisecond, refusedMax: 5 * time.Second,
		maxWait: 500 * time.Millisecond, lossInterval: 100 * time.Millisecond,
		pending: pending, stall: 30 * time.Second, working: time.Second,
		streams: [2]streamLimits{
			control: {count: 4096, bytes: 4 << 20, ping: time.Second, timeout: 5 * time.Second, write: 5 * time.Second},
			// While a receiver waits for its disk, it does not read this stream, and answers no ping on it. So these
			// times are longer.
			bulk: {count: 4096, bytes: 64 << 20, ping: 5 * time.Second, timeout: 30 * time.Second, write: 30 * time.Second},
		},
	}
}
