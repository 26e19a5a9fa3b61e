package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// A mismatch is a reason why an endpoint will not work however long a command waits: another protocol
// at the port, or a certificate that is not accepted.
type mismatch struct{ error }

// Unwrap returns the error itself.
func (m mismatch) Unwrap() error { return m.error }

// reachTime is the timeout of the check of endpoints. A member that does not answer within it may be
// busy or still starting, which is no mismatch.
const reachTime = 2 * time.Second

// reach checks all endpoints at once: it connects, does the TLS handshake and waits for the first
// frame of HTTP/2. errs has an error for each endpoint that fails, else nil.
func (c *caller) reach(ctx context.Context) (errs []error) {
	ctx, cancel := context.WithTimeout(ctx, min(reachTime, c.timeout))
	defer cancel()
	errs = make([]error, len(c.endpoints))
	var wg sync.WaitGroup
	for i, name := range c.endpoints {
		wg.Go(func() { errs[i] = c.secure.probe(ctx, name) })
	}
	wg.Wait()
	return errs
}

// mismatched returns the mismatches of all endpoints, or nil as soon as one endpoint may be
// usable.
func (c *caller) mismatched(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(reachTime, c.timeout))
	defer cancel()
	found := make(chan error, len(c.endpoints))
	for _, name := range c.endpoints {
		go func() {
			err := c.secure.probe(ctx, name)
			if _, is := errors.AsType[mismatch](err); is {
				found <- fmt.Errorf("%s: %w", name, err)
			} else {
				found <- nil
			}
		}()
	}
	var errs []error
	for range c.endpoints {
		err := <-found
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// probe tries one endpoint.
func (s *secure) probe(ctx context.Context, name string) error {
	network, addr, secured := s.split(name)
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if !secured {
		return s.probePlain(ctx, conn, network, addr)
	}
	cfg, err := s.config()
	if err != nil {
		return err
	}
	cfg.NextProtos = []string{"h2"}
	if cfg.ServerName = addr; network == "tcp" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return s.explainHandshake(err)
	}
	// With TLS 1.3 a server refuses a client's certificate after the handshake.
	if err := readSettings(secure); err != nil {
		return s.explainRefusal(err)
	}
	return nil
}

// split returns the address to dial for an endpoint, and whether to use TLS.
func (s *secure) split(name string) (network, addr string, secured bool) {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		scheme, rest = "http", name
		if s.given() {
			scheme = "https"
		}
	}
	network = "tcp"
	if strings.HasPrefix(scheme, "unix") {
		network = "unix"
	}
	return network, strings.TrimSuffix(rest, "/"), strings.HasSuffix(scheme, "s")
}

func (s *secure) probePlain(ctx context.Context, conn net.Conn, network, addr string) error {
	err := readSettings(conn)
	if err == nil {
		return nil
	}
	if isLate(err) {
		return errStarting
	}
	if errors.Is(err, errHTTP1) {
		return mismatch{fmt.Errorf("this port speaks HTTP/1.1 and no gRPC: give one of --listen-client-urls, or https:// if the server asks for TLS")}
	}
	if speaksTLS(ctx, network, addr) {
		return mismatch{errors.New("the server asks for TLS: give https://host:port, with --cacert")}
	}
	return fmt.Errorf("this port does not speak gRPC in plain text: %w", err)
}

// speaksTLS reports whether a server answers a TLS handshake, even with an alert.
func speaksTLS(ctx context.Context, network, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	// Only the protocol matters here, and no data is sent.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx) //nolint:gosec // see above
	_, alert := errors.AsType[*net.OpError](err)
	return err == nil || alert && strings.Contains(err.Error(), "remote error")
}

// explainHandshake adds the remedy to the error of a failed handshake.
func (s *secure) explainHandshake(err error) error {
	if isLate(err) {
		return errStarting
	}
	if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
		return mismatch{errors.New("the server speaks plain text, and the endpoint asks for TLS: give http://host:port")}
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		if s.ca == "" {
			return mismatch{fmt.Errorf("%w: give the authority of the server's certificate with --cacert", err)}
		}
		return mismatch{fmt.Errorf("%w: --cacert %s is another authority's", err, s.ca)}
	}
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong {
		return mismatch{err}
	}
	return s.explainRefusal(err)
}

// explainRefusal adds the remedy to the error of a server that closes the connection during or after
// the handshake.
func (s *secure) explainRefusal(err error) error {
	switch {
	case isLate(err):
		return errStarting
	case strings.Contains(err.Error(), "no application protocol"):
		return mismatch{errors.New("this port speaks TLS and no gRPC: give one of --listen-client-urls")}
	case strings.Contains(err.Error(), "remote error: tls: ") && s.cert == "":
		return mismatch{fmt.Errorf("the server asks for a client certificate: give --cert and --key (%w)", err)}
	case strings.Contains(err.Error(), "remote error: tls: "):
		return mismatch{fmt.Errorf("the server refuses the client certificate --cert %s: %w", s.cert, err)}
	default:
		return err
	}
}

var (
	// errStarting is the error for a port that is bound before the store has been read.
	errStarting = errors.New("this port takes connections, but nothing answers yet: the member may be still starting, or hang: see its log")
	errHTTP1    = errors.New("the answer is HTTP/1")
)

// isLate reports whether an error means that no answer came in time.
func isLate(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// readSettings begins HTTP/2 and waits for the server's first frame, which must be its
// settings.
func readSettings(conn net.Conn) error {
	const (
		preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	)
	if _, err := io.WriteString(conn, preface+settings); err != nil {
		return err
	}
	frame := make([]byte, len(settings))
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	if strings.HasPrefix(string(frame), "HTTP/1") {
		return errHTTP1
	}
	if frame[3] != 4 {
		return fmt.Errorf("it answers with %q", frame)
	}
	return nil
}
