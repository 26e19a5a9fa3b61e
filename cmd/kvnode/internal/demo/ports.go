package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the range that systems give to outgoing
// connections, so that nobody takes the port of a member that is down.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different addresses on loopback that are free now.
func freePorts(n int) ([]string, error) {
	var addrs []string
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close() // nobody knew of it
		}
	}()
	var lc net.ListenConfig
	for range 100 * n {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))
		l, err := lc.Listen(context.Background(), "tcp", addr)
		if err != nil {
			continue
		}
		// It stays open until all are found, or one might be drawn twice.
		held = append(held, l)
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d free ports found on 127.0.0.1 between %d and %d", len(addrs), n, firstPort, lastPort)
}
