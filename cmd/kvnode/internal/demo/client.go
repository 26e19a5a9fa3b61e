package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/internal/procs"
	"github.com/leaderlease/go/kvnode/etcdapi"
	"github.com/leaderlease/go/kvnode/server/status"
)

// Names of read paths, as the trailer gives them, and of modes to ask for.
const (
	pathLease     = "lease"
	modeAuto      = "auto"
	modeLease     = "lease"
	modeReadIndex = "read-index"
	modeLog       = "log"
	modeLocal     = "serializable"
)

// client is etcd's client, connected to one member. It makes each request once:
// who judges a history must know what was asked.
type client struct {
	*clientv3.Client
	m *procs.Member
	// written counts the bytes handed to the member's socket.
	written atomic.Int64
}

func newClient(m *procs.Member) (*client, error) {
	c := &client{m: m}
	var err error
	c.Client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint}, MaxUnaryRetries: 1, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(keepTrailer),
			grpc.WithContextDialer(c.dial),
			// Members come back soon, so it tries again soon.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: 2 * time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", m.Name, err)
	}
	return c, nil
}

// close closes the connection.
func (c *client) close() error {
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("client of %s: %w", c.m.Name, err)
	}
	return nil
}

func (c *client) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.m.Endpoint)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, written: &c.written}, nil
}

// countedConn counts what is written to a connection.
type countedConn struct {
	net.Conn
	written *atomic.Int64
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// trailerKey is the context key of where keepTrailer leaves the trailers.
type trailerKey struct{}

func keepTrailer(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if md, ok := ctx.Value(trailerKey{}).(*metadata.MD); ok {
		opts = append(opts, grpc.Trailer(md))
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

// answer is what a read was told.
type answer struct {
	value    string
	mod      int64
	revision int64
	term     uint64
	// path is how the read was made linearizable, remaining for how long the
	// lease would still have served, if it was under one.
	path      string
	remaining time.Duration
	// called and returned are this process's clock.
	called, returned time.Time
}

// read reads one key in a mode.
func (c *client) read(ctx context.Context, key, mode string) (answer, error) {
	var md metadata.MD
	ctx = context.WithValue(ctx, trailerKey{}, &md)
	ctx = metadata.AppendToOutgoingContext(ctx, etcdapi.MetadataReadMode, mode)
	called := time.Now()
	resp, err := c.Get(ctx, key)
	a := answer{called: called, returned: time.Now()}
	if err != nil {
		return a, err
	}
	a.revision, a.term = resp.Header.GetRevision(), resp.Header.GetRaftTerm()
	if len(resp.Kvs) > 0 {
		a.value, a.mod = string(resp.Kvs[0].GetValue()), resp.Kvs[0].GetModRevision()
	}
	a.path, a.remaining = servedBy(md)
	return a, nil
}

// servedBy reads the trailers.
func servedBy(md metadata.MD) (path string, remaining time.Duration) {
	if v := md.Get(etcdapi.TrailerReadPath); len(v) == 1 {
		path = v[0]
	}
	if v := md.Get(etcdapi.TrailerRemaining); len(v) == 1 {
		if ms, err := strconv.ParseInt(v[0], 10, 64); err == nil {
			remaining = time.Duration(ms) * time.Millisecond
		}
	}
	return path, remaining
}

// statusPatience bounds one question to one member.
const statusPatience = time.Second

// status asks the member for its own view.
func (c *client) status(ctx context.Context) (status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	return status.Fetch(ctx, c.ActiveConnection())
}
