package procs

import (
	"context"
	"fmt"

	"github.com/leaderlease/go/internal/ports"
)

// freePorts returns n different addresses on loopback that were free a moment ago.
func freePorts(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		var err error
		if addrs[i], err = ports.Free(context.Background()); err != nil {
			return nil, fmt.Errorf("%d free ports: %w", n, err)
		}
	}
	return addrs, nil
}
