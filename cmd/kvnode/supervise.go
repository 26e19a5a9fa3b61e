package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/kvnode/supervisor"
)

var errCannotSupervise = errors.New("--supervise needs Linux, the only system that kills a child with its parent: leave the flag out")

// supervise runs the member as a child process, notifies its peers when it has exited, and ends as
// the child did. It opens the log only then, so that it needs little memory before.
func supervise(sys *System, loaded *settings.Loaded) error {
	if !supervisor.Supported {
		return usageError{&server.ConfigError{Err: errCannotSupervise}}
	}
	exit, err := supervisor.Run(sys.Args, sys.Environ)
	if err != nil {
		return err
	}
	log := lateLogger(sys, loaded.Log)
	exit.NotifyPeers(loaded.Server.PeerTLS, log.With("member", loaded.Server.Node.Name, "component", "supervisor"))
	log.close() // before Repeat, which may end this process by a signal
	return exit.Repeat()
}

// openTime limits the wait of a supervisor for the files of its log, which delays the death notices.
const openTime = 100 * time.Millisecond

// lateLogger is newLogger with openTime as its limit. If newLogger fails or blocks (for a pipe
// without a reader), the log goes to standard error, with the reason in each line: the peers must
// be notified all the same.
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
