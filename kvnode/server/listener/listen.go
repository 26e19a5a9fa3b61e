package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Wrapper makes a listener speak what its URL says.
type Wrapper func(l net.Listener, secure bool) net.Listener

// Bare is one for what adds nothing to its listener.
func Bare(l net.Listener, _ bool) net.Listener { return l }

// Listen binds a listener at each URL. Errors say the field that has it.
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

// listenError says which field to change.
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

// CloseAll is for the way out after an error: nothing was accepted, so
// nothing can be lost.
func CloseAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}
