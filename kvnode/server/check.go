package server

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/server/listener"
)

// Check reports everything on this machine for which Start would refuse c, after
// WithDefaults: the data directory and whose it is, a member that runs with it,
// certificates, ports. It leaves nothing behind, asks no other member and reads
// no log. What Validate reports it may report again.
func (c Config) Check() error {
	dir := CheckDataDir(c.Node.DataDir)
	if dir == nil {
		dir = c.node(nobody{}).CheckDataDir()
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
	for _, l := range append(c.listening(), listens{"ListenPeerURLs", c.ListenPeerURLs}) {
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
