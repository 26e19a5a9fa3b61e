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

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

// Check reports everything on this machine for which Start would reject c: the data directory
// (another member's, in use, not writable), certificates, ports. It expects c after WithDefaults. It leaves
// nothing behind, contacts no other member and does not read the log. It may repeat errors of
// Validate.
func (c Config) Check() error {
	dir := CheckDataDir(c.Node.DataDir)
	if dir == nil {
		dir = c.node(noListener{}).CheckDataDir()
	}
	return errors.Join(dir, c.checkFiles(), c.checkPorts())
}

// checkFiles reads the TLS files of both sides, unless Validate has rejected that side's options.
func (c *Config) checkFiles() error {
	var errs []error
	for _, side := range []tlsconf.Config{c.ClientTLS, c.PeerTLS} {
		if errors.Join(side.Validate(), side.ValidateShared()) == nil {
			errs = append(errs, tlsconf.Check(side))
		}
	}
	return errors.Join(errs...)
}

// checkPorts binds all ports of c at once, and closes them.
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

// isGiven reports whether the caller has passed the listener of that field.
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

// CheckDataDir reports why dir cannot be a data directory. It leaves nothing behind: if dir does
// not exist, it only checks the directory in which dir would be created.
func CheckDataDir(dir string) error {
	existing, err := existingDir(dir)
	if err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	if existing == dir {
		if err := checkEtcdDir(dir); err != nil {
			return fmt.Errorf("Node.DataDir %q: %w", dir, err)
		}
	}
	f, err := os.CreateTemp(existing, ".kvnode-*")
	if err != nil {
		return fmt.Errorf("Node.DataDir %q is not writable: %w", dir, err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("Node.DataDir %q: %w", dir, err)
	}
	return nil
}

// existingDir returns dir or its closest parent that exists.
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

// checkEtcdDir returns an error if etcd keeps its data in dir.
func checkEtcdDir(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "member", "wal")); err == nil {
		return errors.New("this is the data of an etcd member, which kvnode cannot read; " + restore.ImportAdvice)
	}
	return nil
}
