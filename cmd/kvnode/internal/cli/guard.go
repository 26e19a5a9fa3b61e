package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

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
	log, closeLog := lateLogger(sys, loaded.Log)
	defer closeLog()
	log = log.With("member", loaded.Server.Node.Name, "component", "guardian")
	death.Announce(loaded.Server.PeerTLS, log)
	return death.End()
}

// openTime is for how long a guardian waits for the files of its log. Shorter: one on a busy disk is not
// used. Longer: so long do the peers wait.
const openTime = 100 * time.Millisecond

// lateLogger is newLogger, or logs to standard error, with the reason in each line, if that fails or
// waits, as for a reader of a pipe: the peers are told all the same, and the member is started again.
func lateLogger(sys *System, cfg settings.Log) (*slog.Logger, func()) {
	type opened struct {
		log   *slog.Logger
		close func()
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		var o opened
		o.log, o.close, o.err = newLogger(sys, cfg)
		done <- o
	}()
	err := fmt.Errorf("--log-outputs %q: not open after %v", cfg.Outputs, openTime)
	select {
	case o := <-done:
		if o.err == nil {
			return o.log, o.close
		}
		err = o.err
	case <-time.After(openTime): // the process ends soon
	}
	return slog.New(slog.NewJSONHandler(sys.Stderr, nil)).With("log_error", err.Error()), func() {}
}
