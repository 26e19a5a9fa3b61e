package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

// The range of free ports lies below the ports that systems choose for outgoing connections. Tests of
// several packages run at the same time, so each process claims a block of the range and goes round in
// it: a port that was just given back is not given out again.
const (
	firstPort  = 10_000
	portBlocks = 80
	blockPorts = 250
)

var (
	portsGiven atomic.Uint32
	// ownBlock is the block of this process. It keeps the listener that claims the block reachable.
	ownBlock = sync.OnceValues(func() (int, net.Listener) { return claimBlock(os.Getpid()) })
)

// claimBlock returns the first port of a block that no other process has, and the listener that tells
// other processes so. The process ID alone does not: two of eighty processes have the same block.
func claimBlock(pid int) (int, net.Listener) {
	for i := range portBlocks {
		b := firstPort + blockPorts*((pid+i)%portBlocks)
		if l, err := listen(context.Background(), b); err == nil {
			return b, l
		}
	}
	return firstPort + blockPorts*(pid%portBlocks), nil // all are in use, so two processes share one
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// Listen returns a listener on a free port of the loopback interface.
func Listen(ctx context.Context) (net.Listener, error) {
	var errs []error
	b, _ := ownBlock()
	for range blockPorts {
		l, err := listen(ctx, b+1+int(portsGiven.Add(1)%(blockPorts-1)))
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// FreeAddr returns a loopback address with a port that was free a moment ago.
func FreeAddr(ctx context.Context) (string, error) {
	l, err := Listen(ctx)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// freeAddrs returns n different addresses.
func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = FreeAddr(context.Background()); err != nil {
			return nil, fmt.Errorf("%d free ports: %w", n, err)
		}
	}
	return addrs, nil
}
