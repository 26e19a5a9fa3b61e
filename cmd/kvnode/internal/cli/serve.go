package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/internal/gctune"
	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/kvnode/supervisor"
)

// stopTime bounds an orderly stop: requests under way, then the transfer of
// leadership. The supervisor that stops the process waits as long.
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
		// Harnesses ask etcd for it with the flags they start it with.
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

// serveWith makes cmd serve, and gives it the flags of that.
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

// reported marks an error that the log has written to where Main would write it once more. There is
// no error, and the exit code is 0, if the member ended because it was removed.
func reported(err error, cfg settings.Log) error {
	if err != nil && toStderr(cfg) {
		return errors.Join(errReported, err)
	}
	return err
}

// toStderr reports whether errors are logged to where a command's go.
func toStderr(cfg settings.Log) bool {
	named := slices.ContainsFunc(cfg.Outputs, func(o string) bool { return o == "default" || o == "stderr" })
	return (named || len(cfg.Outputs) == 0) && levels[cfg.Level] <= slog.LevelError
}

// untilStopped returns when the server has stopped, in order or not.
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

// ended returns what the process ends with. A member that was removed has done what was asked, as
// in etcd: whatever starts members that have failed again must leave it alone.
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
