// Package ports finds ports for demos and tests that must name one before they listen, or
// listen on it again.
package ports

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// The ports are none that systems give to those who connect, or who leave the port open.
// Tests of several packages run at the same time, so each process has a block of its own, and
// goes round in it: what it has just given back it does not give out again.
const (
	first  = 10_000
	blocks = 80
	block  = 250
)

var given atomic.Uint32

// Listen returns a listener on a port of the loopback interface that was free.
func Listen(ctx context.Context) (net.Listener, error) {
	var errs []error
	own := first + block*(os.Getpid()%blocks)
	for range block {
		port := own + int(given.Add(1)%block)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Free returns the address of one that was free a moment ago.
func Free(ctx context.Context) (string, error) {
	l, err := Listen(ctx)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
