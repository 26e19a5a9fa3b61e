package listener

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// listenSocket listens on a unix socket. It replaces a socket file that a killed
// process has left behind, but not one on which a process listens.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, errors.Join(err, statErr)
	}
	conn, dialErr := new(net.Dialer).DialContext(ctx, "unix", path)
	if dialErr == nil {
		_ = conn.Close() // nothing was sent
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return lc.Listen(ctx, "unix", path)
}
