package procs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are drawn from below the range that Linux gives to outgoing
// connections, so that nobody takes the port of a member that is down.
const (
	firstPort = 20000
	lastPort  = 32000
)

// freePorts returns n different addresses on loopback that are free now.
func freePorts(n int) (_ []string, err error) {
	var (
		addrs []string
		open  []net.Listener
	)
	// They stay open until all are found, or one might be drawn twice.
	defer func() {
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for range 100 * n {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		open = append(open, l)
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("only %d of %d free ports found between %d and %d", len(addrs), n, firstPort, lastPort)
}
