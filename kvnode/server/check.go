package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/listener"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/restore"
)

// Check reports everything on this machine for which Start would refuse c, after
// WithDefaults: the data directory and whose it is, a member that runs with it,
// certificates, ports. It leaves nothing behind, asks no other member and reads
// no log. What Validate reports it may report again.
func (c Config) Check() error {
	dir := CheckDataDir(c.Node.DataDir)
	if dir == nil {
		dir = c.node(noListener{}).CheckDataDir()
	}
	return errors.Join(dir, c.checkFiles(), c.checkPorts())
}

// checkFiles reads the files of both sides. What is wrong with a side as such
// Validate reports.
func (c *Config) checkFiles() error {
	var errs []error
	for _, side := range []tlsconf.Config{c.ClientTLS, c.PeerTLS} {
		if errors.Join(side.Validate(), side.ValidateShared()) == nil {
			errs = append(errs, tlsconf.Check(side))
		}
	}
	return errors.Join(errs...)
}

// checkPorts takes all ports that c names at once, and gives them back.
func (c *Config) checkPorts() error {
	var bound []net.Listener
	var errs []error
	for _, l := range append(c.clientListenFields(), listenField{"ListenPeerURLs", c.ListenPeerURLs}) {
		if c.isGiven(l.field) {
			continue
		}
		unreadable := func(s string) bool { _, _, err := listener.Address(s); return err != nil }
		taken, err := listener.Listen(context.Background(), l.field, slices.DeleteFunc(slices.Clone(l.urls), unreadable), listener.Bare)
		bound, errs = append(bound, taken...), append(errs, err...)
	}
	listener.CloseAll(bound)
	return errors.Join(errs...)
}

// isGiven reports whether the caller has bound the listener of that field.
func (c *Config) isGiven(field string) bool {
	switch field {
	case "ListenPeerURLs":
		return c.Node.Listener != nil
	case "ListenClientURLs":
		return c.ClientListener != nil
	case "ListenClientHTTPURLs":
		return c.HTTPListener != nil
	default:
		return false
	}
}

// CheckDataDir reports why dir cannot be a data directory. It leaves nothing
// behind: a directory that is missing is not made, only the one it would be made
// in is tried.
func CheckDataDir(dir string) error {
	there, err := existingDir(dir)
	if err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	if there == dir {
		if err := checkForeign(dir); err != nil {
			return fmt.Errorf("Node.DataDir %q: %w", dir, err)
		}
	}
	f, err := os.CreateTemp(there, ".kvnode-*")
	if err != nil {
		return fmt.Errorf("Node.DataDir %q is not writable: %w", dir, err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	return nil
}

// existingDir returns dir, or the existingDir directory above it that exists.
func existingDir(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%q is a file, not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", err
		}
		dir = parent
	}
}

// checkForeign reports whether another program keeps its data in dir.
func checkForeign(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "member", "wal")); err == nil {
		return errors.New("this is the data of an etcd member, which kvnode cannot read; " + restore.FromEtcd)
	}
	return nil
}
