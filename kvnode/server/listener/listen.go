package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Wrapper wraps the listener of a URL. secure says that the URL asks for TLS.
type Wrapper func(l net.Listener, secure bool) net.Listener

// Bare is the Wrapper that returns l itself.
func Bare(l net.Listener, _ bool) net.Listener { return l }

// Listen binds a listener for each URL. Errors name the field of the configuration.
func Listen(ctx context.Context, field string, urls []string, wrap Wrapper) (bound []net.Listener, errs []error) {
	for _, s := range urls {
		listener, err := listenAt(ctx, s)
		if err != nil {
			errs = append(errs, listenError(field, s, err))
			continue
		}
		bound = append(bound, wrap(listener, SpeaksTLS(s)))
	}
	return bound, errs
}

func listenAt(ctx context.Context, url string) (net.Listener, error) {
	network, addr, err := Address(url)
	switch {
	case err != nil:
		return nil, err
	case network == "unix":
		return listenSocket(ctx, addr)
	default:
		return new(net.ListenConfig).Listen(ctx, network, addr)
	}
}

// listenError names the field to change.
func listenError(field, url string, err error) error {
	what := "port"
	if _, ok := SocketPath(url); ok {
		what = "file"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s %s: the "+what+" is taken, by another process or by another URL of this one: %w", field, url, err)
	}
	return fmt.Errorf("%s %s: cannot listen: %w", field, url, err)
}

// CloseAll closes listeners that have accepted nothing.
func CloseAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}
