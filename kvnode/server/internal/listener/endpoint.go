package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/leaderlease/go/kvnode/internal/connlimit"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
	lpb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3lockpb"
)

// HandshakeTime is how long a connection on a client URL may take for TLS and for the first
// frame of HTTP/2, or the first bytes of HTTP/1.
const HandshakeTime = 5 * time.Second

// maxPending limits the pending connections (package connlimit). Each costs up to 50 KB.
const maxPending = 1024

// The protocols that TLS offers. A gRPC client accepts only h2. A client that accepts both, such as
// curl or a browser, gets the HTTP/1 server.
var (
	bothProtocols = []string{"http/1.1", "h2"}
	onlyGRPC      = []string{"h2"}
	httpProtocols = []string{"h2", "http/1.1"}
)

// Config configures an Endpoint.
type Config struct {
	// TLS has the certificates, nil if no URL for clients speaks TLS.
	TLS *tlsconf.Source
	// MaxOpenStreams limits the requests in progress on all connections.
	MaxOpenStreams int
	// OnlyGRPC says that HTTP has listeners of its own.
	OnlyGRPC bool
	// MaxPending is for tests. Default: maxPending.
	MaxPending int
	// Logger logs connections that fail or are rejected.
	Logger *slog.Logger
}

// Endpoint has the listeners for clients. A gRPC server accepts their connections and
// uses the Endpoint as its credentials. The handshake finds out what a connection speaks.
// HTTP/1 connections go to the listener that Pages returns (credentials.ErrConnDispatched).
// gRPC keeps a goroutine and a time limit for each handshake.
type Endpoint struct {
	credentials.TransportCredentials // immutable, as this block; the methods that servers do not use

	certs *tlsconf.Source
	tls   *tls.Config   // nil without TLS
	pages *PushListener // nil if HTTP has listeners of its own
	port  *connlimit.Port
	h2    *connlimit.H2
	// ending is done once End was called.
	ending context.Context
	end    context.CancelFunc
	log    *slog.Logger
	warn   *rate.Sometimes
}

// NewEndpoint returns an Endpoint without listeners.
func NewEndpoint(c Config) *Endpoint {
	e := &Endpoint{
		TransportCredentials: insecure.NewCredentials(), certs: c.TLS, h2: connlimit.NewH2(c.MaxOpenStreams, c.Logger),
		log: c.Logger.With("component", "server"), warn: &rate.Sometimes{First: 10, Interval: time.Second},
	}
	limits := connlimit.Config{Name: "client", MaxPending: maxPending, Logger: e.log}
	if c.MaxPending > 0 {
		limits.MaxPending = c.MaxPending
	}
	if limits.MaxOpen, _ = connlimit.Files(connlimit.MaxFiles()); limits.MaxOpen > 0 {
		limits.MaxPending = min(limits.MaxPending, limits.MaxOpen/2)
	}
	e.port = connlimit.New(limits)
	e.ending, e.end = context.WithCancel(context.Background())
	protocols := onlyGRPC
	if !c.OnlyGRPC {
		protocols, e.pages = bothProtocols, NewPushListener()
	}
	if c.TLS != nil {
		e.tls = c.TLS.Server(protocols...)
	}
	return e
}

// Options returns the options of the gRPC server.
func (e *Endpoint) Options(admit AdmitFunc) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(e), grpc.ConnectionTimeout(HandshakeTime), grpc.InTapHandle(e.allow(admit))}
}

// Pages returns the listener of the HTTP/1 connections, nil if HTTP has listeners of
// its own.
func (e *Endpoint) Pages() net.Listener {
	if e.pages == nil {
		return nil
	}
	return e.pages
}

// End closes connections during their handshake, and each new one.
func (e *Endpoint) End() { e.end() }

// Connections counts the connections.
func (e *Endpoint) Connections() connlimit.Stats { return e.port.Stats() }

// Streams counts the streams of gRPC, including those of the gateways.
func (e *Endpoint) Streams() (open int64, refused uint64) { return e.h2.Open(), e.h2.Refused() }

// ForGRPC returns l for the gRPC server.
func (e *Endpoint) ForGRPC(l net.Listener, secure bool) net.Listener {
	return &grpcListener{Listener: e.port.Listener(l), ending: e.ending, secure: secure, shared: e.pages != nil}
}

// ForPages returns l for an HTTP server.
func (e *Endpoint) ForPages(l net.Listener, secure bool) net.Listener {
	l = e.port.Listener(l)
	if secure {
		return tls.NewListener(l, e.certs.Server(httpProtocols...))
	}
	return l
}

// ForRedis returns l for the gateway of the Redis protocol. A connection is pending until its first bytes.
func (e *Endpoint) ForRedis(l net.Listener, secure bool) net.Listener {
	l = e.port.Listener(l)
	if secure {
		l = tls.NewListener(l, e.certs.Server())
	}
	return redisListener{l}
}

type redisListener struct{ net.Listener }

// Accept implements net.Listener.
func (l redisListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &redisConn{Conn: c, pending: connlimit.PendingOf(c)}, nil
}

// redisConn is a connection of the Redis protocol, above TLS. One goroutine reads it.
type redisConn struct {
	net.Conn

	pending *connlimit.Pending // nil once bytes have arrived
}

// Read implements net.Conn. If the connection was evicted, the next Read fails.
func (c *redisConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.pending != nil {
		c.pending.Authenticated()
		c.pending = nil
	}
	return n, err
}

// HandshakeContext does the handshake of TLS, if the connection has it.
func (c *redisConn) HandshakeContext(ctx context.Context) error {
	if secured, is := c.Conn.(*tls.Conn); is {
		return secured.HandshakeContext(ctx)
	}
	return nil
}

// TrackHTTP ends the pending state of p's connections with their first request, and notes
// what HostCheck needs.
func TrackHTTP(p *http.Server) *http.Server {
	p.ConnContext = noteTransport
	p.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateActive {
			connlimit.PendingOf(c).Authenticated() // if it was evicted, the next read fails
		}
	}
	return p
}

// ServerHandshake implements credentials.TransportCredentials. A connection that no
// listener of ForGRPC has accepted is refused.
func (e *Endpoint) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := raw.(*grpcConn)
	if !ok {
		return nil, nil, fmt.Errorf("kvnode: a %T came by no listener for clients", raw)
	}
	conn, info, isHTTP2, err := e.handshake(c)
	if err != nil {
		return nil, nil, err
	}
	if isHTTP2 {
		return e.h2.Conn(conn), info, nil
	}
	c.detach()
	if err := e.pages.Push(conn); err != nil {
		return nil, nil, err
	}
	return nil, nil, credentials.ErrConnDispatched
}

// handshake does TLS if the URL is https, and finds out what the client speaks.
func (e *Endpoint) handshake(c *grpcConn) (conn net.Conn, info credentials.AuthInfo, isHTTP2 bool, err error) {
	protocol := ""
	if c.secure {
		conn, info, protocol, err = e.handshakeTLS(c)
	} else {
		conn, info, err = e.TransportCredentials.ServerHandshake(c.Conn)
	}
	if err != nil || !c.shared || protocol == "h2" {
		return conn, info, true, err
	}
	if protocol == "" { // plain text, or a client without ALPN
		conn, isHTTP2, err = sniff(conn)
	}
	return conn, info, isHTTP2, err
}

func (e *Endpoint) handshakeTLS(c *grpcConn) (net.Conn, credentials.AuthInfo, string, error) {
	conn := tls.Server(c.Conn, e.tls)
	// grpcListener closes the connection when the server ends.
	if err := conn.HandshakeContext(context.Background()); err != nil {
		if c.shared {
			sayHTTPS(err)
		}
		// A port probe sends nothing, and connlimit logs evictions.
		if !errors.Is(err, io.EOF) && !c.pending.Closed() && e.ending.Err() == nil {
			e.warn.Do(func() {
				e.log.Warn("TLS handshake with a client failed", "remote", c.RemoteAddr().String(), "error", err)
			})
		}
		return nil, nil, "", err
	}
	c.pending.Progress()
	state := conn.ConnectionState()
	info := credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	return conn, info, state.NegotiatedProtocol, nil
}

// sayHTTPS answers a client that speaks plain HTTP where TLS is spoken, as net/http
// does.
func sayHTTPS(err error) {
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || plain.Conn == nil {
		return
	}
	switch string(plain.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		// An error means that the client has gone.
		_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks TLS: the URL must begin with https://.\n")
	}
}

// grpcListener is the listener of ForGRPC. Endpoint.End closes connections during their handshake,
// because a stop of gRPC waits for handshakes.
type grpcListener struct {
	net.Listener // immutable, as the next two fields
	ending       context.Context
	secure       bool // speaks TLS
	shared       bool // speaks HTTP/1, too
}

// Accept implements net.Listener.
func (l *grpcListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ending, func() { _ = c.Close() }) // an error means that it is closed
	return &grpcConn{Conn: c, pending: connlimit.PendingOf(c), secure: l.secure, shared: l.shared, keep: stop}, nil
}

// grpcConn is a connection that gRPC's server has accepted. One goroutine does its
// handshake and is the only one that calls SetDeadline, detach and Close.
type grpcConn struct {
	net.Conn // immutable, as the next three fields

	pending        *connlimit.Pending
	secure, shared bool
	keep           func() bool // after a call, Endpoint.End does not close the connection
	detached       bool        // passed to the HTTP/1 server
}

// SetDeadline implements net.Conn. gRPC removes its deadline when the client has begun with HTTP/2. It also
// does so for a detached connection, but the HTTP/1 server sets the deadline of that.
func (c *grpcConn) SetDeadline(t time.Time) error {
	if c.detached {
		return nil
	}
	if t.IsZero() {
		c.keep()
		c.pending.Authenticated() // if it was evicted, the next read fails
	}
	return c.Conn.SetDeadline(t)
}

// detach takes the connection from gRPC.
func (c *grpcConn) detach() {
	c.keep()
	_ = c.Conn.SetDeadline(time.Time{}) // the HTTP server finds out if it is closed
	c.detached = true
}

// Close implements net.Conn.
func (c *grpcConn) Close() error {
	c.keep()
	return c.Conn.Close()
}

// AdmitFunc returns an error if a method cannot have another stream from addr.
type AdmitFunc func(addr net.Addr, method string) error

// kinds are the methods with streams that are not connlimit.Short.
var kinds = map[string]connlimit.Kind{
	pb.Watch_Watch_FullMethodName:          connlimit.Waiting,
	lpb.Lock_Lock_FullMethodName:           connlimit.Waiting,
	epb.Election_Campaign_FullMethodName:   connlimit.Waiting,
	epb.Election_Observe_FullMethodName:    connlimit.Waiting,
	fastwire.Method:                        connlimit.Waiting,
	pb.Lease_LeaseKeepAlive_FullMethodName: connlimit.Long,
	pb.KV_RangeStream_FullMethodName:       connlimit.Long,
	pb.Maintenance_Snapshot_FullMethodName: connlimit.Long,
	healthpb.Health_Watch_FullMethodName:   connlimit.Long,
}

// allow returns what gRPC calls before it serves a stream. A refused stream costs
// neither a goroutine nor buffers.
func (e *Endpoint) allow(admit AdmitFunc) tap.ServerInHandle {
	return func(ctx context.Context, stream *tap.Info) (context.Context, error) {
		p, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, nil
		}
		end, err := e.begin(p.Addr, stream.FullMethodName)
		if err != nil {
			return ctx, err
		}
		if err := admit(p.Addr, stream.FullMethodName); err != nil {
			end()
			e.h2.Refuse(p.Addr, err)
			return ctx, err
		}
		context.AfterFunc(ctx, end) // gRPC ends the context with the stream
		return ctx, nil
	}
}

// GatewayOptions returns the options of the gRPC server of the gateways. Their streams count as open
// streams, although they come on connections inside the process.
func (e *Endpoint) GatewayOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			end, err := e.begin(pagesAddr{}, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer end()
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			end, err := e.begin(pagesAddr{}, info.FullMethod)
			if err != nil {
				return err
			}
			defer end()
			return handle(srv, stream)
		}),
	}
}

func (e *Endpoint) begin(addr net.Addr, method string) (end func(), err error) {
	if end, err = e.h2.Begin(addr, kinds[method]); err != nil {
		return nil, grpcstatus.Error(codes.ResourceExhausted, err.Error())
	}
	return end, nil
}
