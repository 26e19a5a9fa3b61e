package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/guardian"
	"github.com/leaderlease/go/kvnode/server"
)

var errNoGuardian = errors.New("--guardian needs Linux: no other system ends a member with the process that waits for it; leave it out")

// guard runs the member as a child process, waits for it, notifies its peers of the death, and exits in
// the same way. To stay small until then, it allocates its logger and connections after the death.
func guard(sys *System, loaded *settings.Loaded) error {
	if !guardian.Supported {
		return usageError{&server.ConfigError{Err: errNoGuardian}}
	}
	death, err := guardian.Guard(sys.Args, sys.Environ)
	if err != nil {
		return err
	}
	log := lateLogger(sys, loaded.Log)
	death.Announce(loaded.Server.PeerTLS, log.With("member", loaded.Server.Node.Name, "component", "guardian"))
	log.close() // before End, which may end this process by a signal
	return death.End()
}

// openTime is how long a supervisor waits for its log files. It delays the death notice by as
// much.
const openTime = 100 * time.Millisecond

// lateLogger returns newLogger's result. If that fails or blocks (a pipe without a reader), the log goes
// to standard error, with the reason in each line: the death notice must be sent in any case.
func lateLogger(sys *System, cfg settings.Log) *processLog {
	type opened struct {
		log *processLog
		err error
	}
	done := make(chan opened, 1)
	go func() {
		var o opened
		o.log, o.err = newLogger(sys, cfg)
		done <- o
	}()
	err := fmt.Errorf("--log-outputs %q: not open after %v", cfg.Outputs, openTime)
	select {
	case o := <-done:
		if o.err == nil {
			return o.log
		}
		err = o.err
	case <-time.After(openTime):
		go func() {
			if o := <-done; o.err == nil {
				o.log.close()
			}
		}()
	}
	fallback := cfg // the goroutine above may have yet to read cfg
	fallback.Outputs, fallback.Format = nil, "json"
	log, _ := newLogger(sys, fallback) // standard error does not fail
	log.Logger = log.With("log_error", err.Error())
	return log
}
