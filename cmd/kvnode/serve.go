package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/internal/gctune"
	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/kvnode/supervisor"
)

// stopTime is the timeout of an orderly stop: running requests finish, then leadership is
// transferred. systemd's unit waits longer.
const stopTime = 10 * time.Second

const serveLong = `Serve runs one member until it is told to stop with SIGTERM or SIGINT: it is not ready any more,
requests under way finish, leadership is transferred, the node stops. A second signal ends the
process at once. Once linearizable reads are served, it logs "ready to serve client requests".`

func newServe(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a member of a cluster",
		Long:  serveLong,
		Args:  settings.NoArgs,
		// Test harnesses call etcd with --version beside its other flags.
		Version: versionText(),
	}
	cmd.SetVersionTemplate("{{.Version}}")
	serveWith(cmd, sys)
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprintf(c.OutOrStderr(), "Usage:\n  kvnode serve [flags]\n\n")
		return errors.Join(err, settings.Help(c.OutOrStderr(), c.Flags()))
	})
	return cmd
}

// serveWith gives cmd the flags and the action of kvnode serve.
func serveWith(cmd *cobra.Command, sys *System) {
	if err := settings.AddFlags(cmd); err != nil {
		panic(err) // two settings have one name
	}
	printConfig := cmd.Flags().Bool("print-config", false, "Print the configuration in effect, and where each value comes from, and end.")
	validate := cmd.Flags().Bool("validate", false, "Check the configuration and what it needs of this machine (data directory, files, ports), report all that is wrong, and end.")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		loaded, err := settings.Load(settings.Flags(c.Flags()), sys.Environ)
		if *validate {
			err = errors.Join(err, loaded.Check())
		}
		if *validate {
			for _, w := range append(loaded.Warnings, loaded.Server.Warnings()...) {
				_, _ = fmt.Fprintln(sys.Stderr, "warning:", settings.Spoken(w))
			}
		}
		if err != nil {
			return usageError{&server.ConfigError{Err: err}}
		}
		switch {
		case *printConfig:
			return loaded.Print(sys.Stdout)
		case *validate:
			_, err := fmt.Fprintln(sys.Stdout, "the configuration is valid")
			return err
		}
		return serve(sys, loaded)
	}
}

func serve(sys *System, loaded *settings.Loaded) error {
	if loaded.Supervise {
		client, err := supervisor.Connect()
		if err != nil || client == nil { // this process has no supervisor yet: be one
			return supervise(sys, loaded)
		}
		loaded.Server.Node.Supervisor = client
	}
	log, err := newLogger(sys, loaded.Log)
	if err != nil {
		return usageError{err}
	}
	defer log.close()
	defer gctune.Start()()
	for _, w := range loaded.Warnings {
		log.Warn(w)
	}
	stop := watchSignals(sys, log)
	defer stop.ignore()

	cfg := loaded.Server
	cfg.Logger, cfg.DroppedLogLines, cfg.Spell = log.Logger, log.dropped, settings.Spoken
	log.Info("starting kvnode", "version", server.Version(), "commit", commit(), "go", runtime.Version(),
		"name", cfg.Node.Name, "data_dir", cfg.Node.DataDir)
	srv, err := server.Start(cfg)
	if _, wrong := errors.AsType[*server.ConfigError](err); wrong {
		if !toStderr(loaded.Log) {
			log.Error("cannot start", "error", err)
		}
		return usageError{err} // as --validate says it
	}
	if err != nil {
		log.Error("cannot start", "error", err)
	} else if err = untilStopped(srv, stop.asked, log.Logger); srv.Err() == nil {
		return err
	}
	return reported(err, loaded.Log)
}

// reported marks an error that the log has already written to standard error, so that run does not
// repeat it. err is nil if the member was removed.
func reported(err error, cfg settings.Log) error {
	if err != nil && toStderr(cfg) {
		return errors.Join(errReported, err)
	}
	return err
}

// toStderr reports whether the log writes errors to standard error.
func toStderr(cfg settings.Log) bool {
	named := slices.ContainsFunc(cfg.Outputs, func(o string) bool { return o == "default" || o == "stderr" })
	return (named || len(cfg.Outputs) == 0) && levels[cfg.Level] <= slog.LevelError
}

// untilStopped waits for a signal or a failure, and stops the server.
func untilStopped(srv *server.Server, asked <-chan struct{}, log *slog.Logger) error {
	stopping := supervised(srv, log)
	select {
	case <-asked:
	case <-srv.Done():
	}
	stopping()
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	failure := srv.Err()
	if failure != nil {
		log.Error("the member has failed and stops", "error", failure)
	}
	return ended(failure, srv.Stop(ctx))
}

// ended returns the error that the process exits with. The exit code of a removed member is 0, as in
// etcd, so that a supervisor does not restart it.
func ended(failure, stop error) error {
	switch {
	case errors.Is(failure, node.ErrRemoved):
		return nil
	case failure != nil:
		return failure
	default:
		return stop
	}
}

// again is how long further signals are ignored. A terminal signals the whole process
// group, and a wrapper in the group may forward the same signal.
const again = 300 * time.Millisecond

// signals requests an orderly stop at the first signal and exits at the second.
type signals struct {
	asked chan struct{} // closed by the first
	stop  chan struct{}
	done  chan struct{}
}

func watchSignals(sys *System, log *processLog) *signals {
	s := &signals{asked: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(s.done)
		defer signal.Stop(received)
		if !s.wait(received, 0) {
			return
		}
		log.Info("asked to stop")
		close(s.asked)
		if s.wait(received, again) {
			log.Warn("asked to stop again: ending at once")
			log.close()
			sys.Exit(exitFailed)
		}
	}()
	return s
}

// wait returns true at a signal later than deaf, and false when the watch is stopped.
func (s *signals) wait(received <-chan os.Signal, deaf time.Duration) bool {
	for began := time.Now(); ; {
		select {
		case <-received:
			if time.Since(began) >= deaf {
				return true
			}
		case <-s.stop:
			return false
		}
	}
}

// ignore stops the watch.
func (s *signals) ignore() {
	close(s.stop)
	<-s.done
}

// supervised reports the member's state to systemd, for a unit of Type=notify: it is ready
// when it serves linearizable reads. With WatchdogSec, it sends a keep-alive at half of that
// interval if the raft loop has turned and /livez does not fail. The returned function
// reports that the member stops. Without NOTIFY_SOCKET nothing is sent.
func supervised(srv *server.Server, log *slog.Logger) (stopping func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("WATCHDOG_USEC is invalid: no keep-alives are sent to systemd", "error", err)
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		say(log, "STATUS=waiting for a leader")
		watch := watchdog{ticks: func() uint64 { return srv.Node().Status().Late.Count }}
		ready, due := srv.Ready(), make(<-chan time.Time)
		if interval > 0 {
			ticker := time.NewTicker(interval / 2)
			defer ticker.Stop()
			due = ticker.C
		}
		for {
			select {
			case <-ready:
				say(log, daemon.SdNotifyReady+"\nSTATUS=serving")
				ready = nil
			case <-due:
				if watch.turned() && srv.Live(context.Background()) == nil {
					say(log, daemon.SdNotifyWatchdog)
				}
			case <-ended:
				say(log, daemon.SdNotifyStopping+"\nSTATUS=stopping")
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// watchdog detects a raft loop that has stopped, for example behind a blocked log output or a disk
// read. Such a member keeps its promise and serves no request. The watchdog ignores slow writes.
type watchdog struct {
	ticks func() uint64 // of the loop, so far
	last  uint64
}

// turned reports whether the loop has ticked since the last call.
func (w *watchdog) turned() bool {
	before := w.last
	w.last = w.ticks()
	return w.last != before
}

// say sends a state to systemd, if NOTIFY_SOCKET is set.
func say(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot send the state to systemd", "state", state, "error", err)
	}
}
