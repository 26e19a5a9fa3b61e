//go:build !linux

package failover

import (
	"context"
	"errors"
)

// ErrNotPrivate says that this process may not have mounts and networks of its own.
var ErrNotPrivate = errors.New("deaths: no mounts and networks of its own: that needs Linux")

// Private is not supported.
func Private(context.Context) (done bool, err error) { return false, ErrNotPrivate }

func shutDown(string) error { return ErrNotPrivate }
