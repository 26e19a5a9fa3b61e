// Command leasebench measures what a leader lease buys: lease reads against
// every other way to serve a linearizable read, in the process, over the wire,
// and beside a running etcd.
// leasebench --help explains each arm.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(streams{out: os.Stdout, err: os.Stderr})
	return execute(ctx, root, args, os.Stderr)
}

// execute returns the exit code: 2 if the command line is wrong, and 1 for any other
// failure.
func execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "leasebench:", err) //nolint:errcheck // stderr is the last resort
	if began {
		return 1
	}
	return 2
}

// streams are where output goes.
type streams struct{ out, err io.Writer }

// common are the flags of every measurement.
type common struct {
	streams
	bench.Timing
	quick bool
	out   string
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use: "leasebench", Short: rootShort, Long: rootLong,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	c := &common{streams: s}
	f := root.PersistentFlags()
	t := defaultTiming()
	f.IntVar(&c.Rounds, "rounds", t.Rounds, "how often each arm is measured")
	f.DurationVar(&c.Duration, "duration", t.Duration, "how long each arm is measured in each round")
	f.DurationVar(&c.Warmup, "warmup", t.Warmup, "how long each arm runs before that")
	f.BoolVar(&c.quick, "quick", false, "one short round and fewer conditions: it shows that everything works, not how fast")
	f.StringVar(&c.out, "out", "", "`directory` for a file with the report (default: none, the text is only printed; all has "+defaultOut+")")
	root.AddCommand(
		newCluster(c), newStale(c), newFailover(c),
		newCompare(c), newSize(c), newAll(c), newMember(),
	)
	return root
}

// timing returns normal, or quick with --quick, with the flags that are given.
func (c *common) timing(cmd *cobra.Command, normal, quick bench.Timing) (bench.Timing, error) {
	t := normal
	if c.quick {
		t = quick
	}
	if cmd.Flags().Changed("rounds") {
		t.Rounds = c.Rounds
	}
	if cmd.Flags().Changed("warmup") {
		t.Warmup = c.Warmup
	}
	if cmd.Flags().Changed("duration") {
		t.Duration = c.Duration
	}
	return t, t.Validate()
}

// part makes cmd run the plan of add. quick says that --quick is given and the flag named
// is not, so that add takes fewer conditions.
func (c *common) part(cmd *cobra.Command, named string, add func(s *bench.Suite, t bench.Timing, quick bool) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.runPart(cmd, func(s *bench.Suite, t bench.Timing) error {
			return add(s, t, c.quick && !cmd.Flags().Changed(named))
		})
	}
	return cmd
}

// runPart plans one part with the usual times, and runs it.
func (c *common) runPart(cmd *cobra.Command, add func(s *bench.Suite, t bench.Timing) error) error {
	return c.runTimed(cmd, defaultTiming(), quickTiming(), add)
}

// runTimed plans one part with the times that timing returns, and runs it.
func (c *common) runTimed(cmd *cobra.Command, normal, quick bench.Timing, add func(s *bench.Suite, t bench.Timing) error) error {
	t, err := c.timing(cmd, normal, quick)
	if err != nil {
		return err
	}
	s := bench.New()
	if err := add(s, t); err != nil {
		return err
	}
	return c.finish(cmd, s)
}

// finish runs the plan, and prints and saves the report even after an error.
func (c *common) finish(cmd *cobra.Command, s *bench.Suite) error {
	err := s.Run(cmd.Context(), progress(c.err, s.Takes()))
	if printErr := s.Report.WriteText(c.streams.out); printErr != nil && err == nil {
		err = printErr
	}
	if c.out != "" {
		file, saveErr := s.Report.Save(c.out, s.Report.Environment.Date.Format("2006-01-02-150405")+"-leasebench-"+cmd.Name()+".txt")
		fmt.Fprintln(c.err, "wrote", filepath.ToSlash(file)) //nolint:errcheck // stderr is the last resort
		if err == nil {
			err = saveErr
		}
	}
	if err != nil {
		return err
	}
	return s.Report.Verdict()
}

// progress writes a line for each part of a plan that takes total.
func progress(to io.Writer, total time.Duration) func(step string, behind time.Duration) {
	write := func(format string, args ...any) {
		_, _ = fmt.Fprintf(to, format+"\n", args...) // a run does not fail for its progress
	}
	write("plan: about %v", total.Round(time.Second))
	last := ""
	return func(step string, behind time.Duration) {
		if part, _, _ := strings.Cut(step, ","); part != last {
			last = part
			write("%3.0f%% done, next %s", 100*float64(behind)/float64(max(total, 1)), part)
		}
	}
}
