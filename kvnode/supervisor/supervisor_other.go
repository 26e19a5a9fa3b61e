//go:build !linux

package supervisor

import "errors"

// Supported says whether this system can tell for certain that a process is dead, and ends a child
// with its parent.
const Supported = false

var errUnsupported = errors.New("guardian: this system cannot end a process with its parent; only Linux does")

// Inherit returns nil: no process has a guardian here.
func Inherit() (*Ward, error) { return nil, nil } //nolint:nilnil // as on Linux

// Guard fails.
func Guard([]string, []string) (*Death, error) { return nil, errUnsupported }

// End does nothing: there is no death to tell of here.
func (d *Death) End() error { return nil }
