package cli

import (
	"errors"
	"log/slog"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/guardian"
	"github.com/leaderlease/go/kvnode/server"
)

var errNoGuardian = errors.New("--guardian needs Linux: no other system ends a member with the process that waits for it; leave it out")

// guard runs the member as a child, waits for its end, tells its peers, and ends in the same
// way. Whatever it needs for that it makes when the child is dead: until then it is to be small.
func guard(sys *System, loaded *settings.Loaded) error {
	if !guardian.Supported {
		return usageError{&server.ConfigError{Err: errNoGuardian}}
	}
	death, err := guardian.Guard(sys.Args, sys.Environ)
	if err != nil {
		return err
	}
	log, closeLog, err := newLogger(sys, loaded.Log)
	if err != nil { // the files may have gone meanwhile; the peers are told all the same
		log, closeLog = slog.New(slog.NewJSONHandler(sys.Stderr, nil)), func() {}
		log.Warn("the log cannot be written to", "error", err)
	}
	defer closeLog()
	log = log.With("member", loaded.Server.Node.Name, "component", "guardian")
	death.Announce(loaded.Server.PeerTLS, log)
	return death.End()
}
