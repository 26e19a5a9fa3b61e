package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/arrivals"
	"github.com/leaderlease/go/kvnode/server/floodgate"
	"github.com/leaderlease/go/kvnode/tlsconf"
)

// ArrivalTime bounds how long a connection may take until it has said what it
// speaks and, for gRPC, has begun to. Longer: whoever says nothing costs a
// goroutine for so long. Shorter: clients far away do not get in.
const ArrivalTime = 5 * time.Second

// What clients with TLS are offered. A client of gRPC accepts h2 only; one of
// HTTP, which may accept both, gets what the pages speak; browsers and the like
// at listeners of HTTP alone are offered httpProtocols.
var (
	bothProtocols = []string{"http/1.1", "h2"}
	onlyGRPC      = []string{"h2"}
	httpProtocols = []string{"h2", "http/1.1"}
)

// Config configures an Entrance.
type Config struct {
	// TLS has the certificates, nil if no client URL speaks TLS.
	TLS *tlsconf.Source
	// MaxOpenStreams bounds the requests under way on all connections of gRPC.
	MaxOpenStreams int
	// OnlyGRPC says that HTTP has listeners of its own.
	OnlyGRPC bool
	// Strangers and Known bound those who have not begun yet, on all listeners together:
	// hosts of members, and this machine, have places of their own.
	Strangers, Known arrivals.Bounds
	// Logger's lines say which member has written them.
	Logger *slog.Logger
}

// Entrance is where clients come in, on all client URLs. gRPC's server accepts
// their connections and asks its credentials, which the entrance is, to shake
// hands. What turns out to be HTTP/1 goes to the pages then: gRPC has an error
// for that, and knows a goroutine, a time limit and an end for each connection.
type Entrance struct {
	// The methods that servers do not need.
	credentials.TransportCredentials // immutable, as all of this block

	certs *tlsconf.Source
	tls   *tls.Config // nil if there is none
	pages *Handover   // nil if HTTP has listeners of its own
	hall  *arrivals.Hall
	// members says who else is known, once the node runs.
	members atomic.Pointer[kvnode.Node]
	meter   *floodgate.Meter
	// ending is done when whoever has not come in yet is not to any more.
	ending   context.Context
	end      context.CancelFunc
	log      *slog.Logger
	complain *rate.Sometimes
}

// New returns an entrance that has no listener yet.
func New(c Config) *Entrance {
	e := &Entrance{
		TransportCredentials: insecure.NewCredentials(),
		certs:                c.TLS, meter: floodgate.New(c.Logger, c.MaxOpenStreams),
		log: c.Logger.With("component", "server"), complain: &rate.Sometimes{First: 10, Interval: time.Second},
	}
	e.hall = e.newHall(c.Strangers, c.Known)
	e.ending, e.end = context.WithCancel(context.Background())
	protocols := onlyGRPC
	if !c.OnlyGRPC {
		protocols, e.pages = bothProtocols, NewHandover()
	}
	if c.TLS != nil {
		e.tls = c.TLS.Server(protocols...)
	}
	return e
}

// Room returns the error with which a request is refused at once that has begun on the connection
// from addr, nil if there is room for it.
type Room func(addr net.Addr, method string) error

// Options make a server of gRPC one behind the entrance.
func (e *Entrance) Options(room Room) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(endable{counted{e}}), grpc.ConnectionTimeout(ArrivalTime), grpc.InTapHandle(permit(room))}
}

// Pages returns the listener of what turns out to be HTTP/1, nil if HTTP has
// listeners of its own.
func (e *Entrance) Pages() net.Listener {
	if e.pages == nil {
		return nil
	}
	return e.pages
}

// Trust tells the entrance of the node, which knows where members are.
func (e *Entrance) Trust(node *kvnode.Node) { e.members.Store(node) }

// End closes the connections that have not come in yet, and lets no more in.
func (e *Entrance) End() { e.end() }

// Arrivals returns how many connections have come, and their fate.
func (e *Entrance) Arrivals() arrivals.Stats { return e.hall.Stats() }

// Floods returns what was counted of those who have come in.
func (e *Entrance) Floods() floodgate.Counts { return e.meter.Counts() }

// ForClients makes a listener one of the entrance.
func (e *Entrance) ForClients(l net.Listener, secure bool) net.Listener {
	return &clientListener{Listener: e.hall.Listener(l, secure), ending: e.ending, secure: secure, shared: e.pages != nil}
}

// ForPages makes a listener one of HTTP alone.
func (e *Entrance) ForPages(l net.Listener, secure bool) net.Listener {
	l = e.hall.Listener(l, secure)
	if secure {
		return tls.NewListener(l, e.certs.Server(httpProtocols...))
	}
	return l
}

// ServerHandshake implements credentials.TransportCredentials. What did not come
// by a listener of the entrance is refused: nothing says that it may be plain.
func (e *Entrance) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	a, ok := raw.(*arrival)
	if !ok {
		return nil, nil, fmt.Errorf("kvnode: a %T came by no listener for clients", raw)
	}
	conn, info, protocol, err := e.greet(a)
	if err != nil || !a.shared || protocol == "h2" {
		return conn, info, err
	}
	if protocol == "" { // plain text, or a client that does not negotiate
		first, isHTTP2, err := listenFirst(conn)
		if err != nil || isHTTP2 {
			return first, info, err
		}
		conn = first
	}
	a.leave()
	if err := e.pages.Give(conn); err != nil {
		return nil, nil, err
	}
	return nil, nil, credentials.ErrConnDispatched
}

// greet shakes hands if that is due, and returns what was agreed on.
func (e *Entrance) greet(a *arrival) (net.Conn, credentials.AuthInfo, string, error) {
	if !a.secure {
		conn, info, err := e.TransportCredentials.ServerHandshake(a.Conn)
		return conn, info, "", err
	}
	conn := tls.Server(a.Conn, e.tls)
	if err := conn.HandshakeContext(a.guest.Context(context.Background())); err != nil {
		if a.shared {
			sayHTTPS(err)
		}
		// Probes of ports say nothing, and the hall has a line of its own.
		quiet := errors.Is(err, io.EOF) || errors.Is(err, arrivals.ErrThrottled) || a.guest.Cut()
		if !quiet && e.ending.Err() == nil {
			e.complain.Do(func() {
				e.log.Warn("TLS handshake with a client failed", "remote", a.RemoteAddr().String(), "error", err)
			})
		}
		return nil, nil, "", err
	}
	a.guest.Alive()
	state := conn.ConnectionState()
	info := credentials.TLSInfo{
		State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	return conn, info, state.NegotiatedProtocol, nil
}

// sayHTTPS answers who speaks plain HTTP where TLS is spoken, as net/http does.
func sayHTTPS(err error) {
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || plain.Conn == nil {
		return
	}
	switch string(plain.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		// Whoever does not read it learns from the end of the connection.
		_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks TLS: the URL must begin with https://.\n")
	}
}
