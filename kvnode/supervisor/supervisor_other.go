//go:build !linux

package supervisor

import "errors"

// Supported reports whether this system reports the exit of a child reliably, and kills a child with its parent.
const Supported = false

var errUnsupported = errors.New("supervisor: this system cannot kill a child with its parent; only Linux can")

// Connect returns nil: no process has a supervisor on this system.
func Connect() (*Client, error) { return nil, nil } //nolint:nilnil // as on Linux

// Run fails.
func Run([]string, []string) (*Exit, error) { return nil, errUnsupported }

// Repeat does nothing, because Run returns no Exit.
func (e *Exit) Repeat() error { return nil }
