// Package ports finds ports for demos and tests that must name one before they listen, or
// listen on it again.
package ports

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
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

var (
	given atomic.Uint32
	// own is the process's block. It refers to the listener for as long as the process runs:
	// one that nobody refers to is closed.
	own = sync.OnceValues(func() (int, net.Listener) { return claim(os.Getpid()) })
)

// claim returns the first port of a block that no other process has, and the listener that
// says so to others. IDs of processes alone do not: two in eighty have the same block.
func claim(pid int) (int, net.Listener) {
	for i := range blocks {
		b := first + block*((pid+i)%blocks)
		if l, err := listen(context.Background(), b); err == nil {
			return b, l
		}
	}
	return first + block*(pid%blocks), nil // all are in use: who shares one is left to chance
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// Listen returns a listener on a port of the loopback interface that was free.
func Listen(ctx context.Context) (net.Listener, error) {
	var errs []error
	b, _ := own()
	for range block {
		l, err := listen(ctx, b+1+int(given.Add(1)%(block-1)))
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
