package server

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
)

// arrivalTime bounds how long a connection may take until it has said what it
// speaks and, for gRPC, has begun to. Longer: whoever says nothing costs a
// goroutine for so long. Shorter: clients far away do not get in.
const arrivalTime = 5 * time.Second

// What clients with TLS are offered. A client of gRPC accepts h2 only; one of
// HTTP, which may accept both, gets what the pages speak.
var (
	bothProtocols = []string{"http/1.1", "h2"}
	onlyGRPC      = []string{"h2"}
)

// entrance is where clients come in, on all client URLs. gRPC's server accepts
// their connections and asks its credentials, which the entrance is, to shake
// hands. What turns out to be HTTP/1 goes to the pages then: gRPC has an error
// for that, and knows a goroutine, a time limit and an end for each connection.
type entrance struct {
	// The methods that servers do not need.
	credentials.TransportCredentials // immutable, as all of this block

	certs certificates
	tls   *tls.Config // nil if there is none
	pages *handover   // nil if HTTP has listeners of its own
	hall  *arrivals.Hall
	// members says who else is known, once the node runs.
	members atomic.Pointer[kvnode.Node]
	gate    *floodgate.Gate
	// ending is done when whoever has not come in yet is not to any more.
	ending   context.Context
	end      context.CancelFunc
	log      *slog.Logger
	complain *rate.Sometimes
}

func newEntrance(c *Config, certs certificates) *entrance {
	e := &entrance{
		TransportCredentials: insecure.NewCredentials(),
		certs:                certs, gate: floodgate.New(c.named(), c.MaxOpenStreams),
		log: c.log(), complain: &rate.Sometimes{First: 10, Interval: time.Second},
	}
	e.hall = e.newHall()
	e.ending, e.end = context.WithCancel(context.Background())
	protocols := onlyGRPC
	if len(c.ListenClientHTTPURLs) == 0 {
		protocols, e.pages = bothProtocols, newHandover()
	}
	if certs.client != nil {
		e.tls = certs.client.Server(protocols...)
	}
	return e
}

// options make a server of gRPC one behind the entrance.
func (e *entrance) options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(endable{counted{e}}), grpc.ConnectionTimeout(arrivalTime), grpc.InTapHandle(permit)}
}

// forClients makes a listener one of the entrance.
func (e *entrance) forClients(l net.Listener, secure bool) net.Listener {
	return &clientListener{Listener: e.hall.Listener(l, secure), ending: e.ending, secure: secure, shared: e.pages != nil}
}

// forPages makes a listener one of HTTP alone.
func (e *entrance) forPages(l net.Listener, secure bool) net.Listener {
	l = e.hall.Listener(l, secure)
	if secure {
		return tls.NewListener(l, e.certs.client.Server(httpProtocols...))
	}
	return l
}

// ServerHandshake implements credentials.TransportCredentials. What did not come
// by a listener of the entrance is refused: nothing says that it may be plain.
func (e *entrance) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
	if err := e.pages.give(conn); err != nil {
		return nil, nil, err
	}
	return nil, nil, credentials.ErrConnDispatched
}

// greet shakes hands if that is due, and returns what was agreed on.
func (e *entrance) greet(a *arrival) (net.Conn, credentials.AuthInfo, string, error) {
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
