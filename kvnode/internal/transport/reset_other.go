//go:build !windows

package transport

import "syscall"

// resets are what the system says of a connection that the other end has reset.
var resets = []error{syscall.ECONNRESET}
