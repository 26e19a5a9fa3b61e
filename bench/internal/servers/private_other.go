//go:build !linux

package servers

import (
	"context"
	"errors"
)

// errNotPrivate: the system refuses this process mounts and networks of its own.
var errNotPrivate = errors.New("no mounts and networks of its own: that needs Linux")

// private is not supported.
func private(context.Context) (done bool, err error) { return false, errNotPrivate }

func shutDown(string) error { return errNotPrivate }
