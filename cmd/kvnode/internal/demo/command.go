// Package demo is kvnode demo: three real members as child processes, to look at
// or to watch in a scripted run.
//
//	root.AddCommand(demo.Command())
//
// # What the story promises
//
// Each line with a mark is a claim, and its mark is the result of a check that
// was made from outside, through sockets and signals, as any client or operator
// could. Lines without a mark inform and may vary. The story succeeds only if
// every scene was played, has claimed something, and all claims held.
//
// No claim is about how fast something is: a slow machine makes the story long,
// not false.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/internal/testcluster"
)

// options are the command's flags.
type options struct {
	story bool
	pace  float64 // of the pauses for the reader
	dir   string  // empty: a temporary one
	keep  bool

	// program starts a member; flags of kvnode serve are appended.
	program testcluster.Program
}

// maxPace is the maximum of --pace: a slower story seems to hang.
const maxPace = 20

func (o *options) validate() error {
	if !(o.pace >= 0 && o.pace <= maxPace) { // not a number fails too
		return fmt.Errorf("--pace %v must be from 0 to %d", o.pace, maxPace)
	}
	return nil
}

// Command returns kvnode demo.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run three nodes on this machine, to try things on or to watch a story",
		Long: `Run three real nodes on this machine as child processes, with directories and
ports of their own. Nothing has to be set up, and nothing is left behind.

Without --story it prints what to paste into another terminal and shows, once a
second, which member leads and under which lease, until Ctrl-C.

With --story it plays a script of about 30 seconds: an election, reads under the
leader lease beside ReadIndex reads, a leader that freezes and wakes too late, a
crash, a transfer, and a verdict over everything that the clients saw. Each
claim it prints was checked; the exit code is 0 only if all of them held.`,
		Example: `  kvnode demo
  kvnode demo --story
  kvnode demo --story --pace 0   # without pauses to read, as for CI`,
		Args: func(cmd *cobra.Command, args []string) error {
			return errors.Join(settings.NoArgs(cmd, args), o.validate())
		},
		SilenceUsage:  true,
		SilenceErrors: true, // the root prints them
	}
	f := cmd.Flags()
	f.BoolVar(&o.story, "story", false, "play the scripted run and exit with its verdict")
	f.Float64Var(&o.pace, "pace", 1, "length of the story's pauses, relative to the usual; 0: none")
	f.StringVar(&o.dir, "dir", "", "keep data and logs in this directory, which must be empty or missing")
	f.BoolVar(&o.keep, "keep", false, "do not remove data and logs at the end")
	_ = cmd.MarkFlagDirname("dir") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("kvnode demo: find this program, to run it as a node: %w", err)
		}
		o.program = testcluster.Program{Path: self, Args: []string{"serve"}}
		if err := run(ctx, &o, newPrinter(cmd.OutOrStdout())); err != nil {
			return fmt.Errorf("kvnode demo: %w", err)
		}
		return nil
	}
	return cmd
}

// run runs the story or the live view in a directory that it removes afterwards.
func run(ctx context.Context, o *options, out *printer) (err error) {
	dir, err := makeDir(o.dir)
	if err != nil {
		return err
	}
	c, err := newCluster(o.program, dir)
	if err != nil {
		if o.dir == "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	defer func() {
		err = errors.Join(err, c.close())
		// The logs are needed to find a fault.
		if o.keep || o.dir != "" || err != nil {
			out.linef("Data and logs are in %s", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if o.story {
		return tell(ctx, o, out, c)
	}
	return live(ctx, out, c)
}

// makeDir creates a directory for this run alone.
func makeDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "kvnode-demo-")
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return "", fmt.Errorf("--dir %q is not empty: the demo begins with fresh nodes", dir)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("--dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	return dir, nil
}
