package transport

import "syscall"

// resets are what the system, or its stand-in, says of a connection that the other end has
// reset.
var resets = []error{syscall.ECONNRESET, syscall.WSAECONNRESET}
