package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/demo"
	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/server"
)

// Exit codes.
const (
	// exitOK means that everything went well; a server was stopped in order.
	exitOK = 0
	// exitFailed means that the node failed, an endpoint does not answer, a log is
	// damaged, or a second signal aborted an orderly stop.
	exitFailed = 1
	// exitUsage means that the command line or the configuration is wrong, or names
	// a missing resource of this machine, such as a file or a free port.
	exitUsage = 2
)

// System is the environment of the process.
type System struct {
	Args           []string // without the program's name
	Environ        []string
	Stdout, Stderr io.Writer
	// Exit ends the process at once.
	Exit func(code int)
}

// printError prints the final error of a command. It does not wait for a blocked standard
// error: a member that has failed must end, or its supervisor does not start it again.
func (s *System) printError(text string) {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		_, _ = fmt.Fprintln(s.Stderr, text)
	}()
	select {
	case <-printed:
	case <-time.After(logFlushTime):
	}
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// errReported is returned by a command that has already printed its error.
var errReported = errors.New("kvnode: reported")

// run runs the command in sys and returns the exit code.
func run(sys System) int {
	root := newRoot(&sys)
	root.SetArgs(sys.Args)
	root.SetOut(sys.Stdout)
	root.SetErr(sys.Stderr)
	// An error before a command begins is an error in the command line.
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }

	cmd, err := root.ExecuteC()
	_, usage := errors.AsType[usageError](err)
	usage = usage || !began
	_, wrong := errors.AsType[*server.ConfigError](err)
	child, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case ended && child.ExitCode() > 0 && !errors.Is(err, errLockLost): // the command under kvnode lock has printed its error
		return child.ExitCode()
	}
	said := printable(settings.Spoken(err.Error()))
	switch by, signaled := endedBy(child); {
	case signaled && !errors.Is(err, errLockLost):
		sys.printError(said)
		return 128 + by // as shells do
	case wrong: // its text names the remedy
		sys.printError(said)
		return exitUsage
	case usage:
		sys.printError(fmt.Sprintf("%s\nSee %s --help.", said, helpOf(cmd)))
		return exitUsage
	default:
		sys.printError(said)
		return exitFailed
	}
}

// helpOf returns the command line that shows the flags of cmd. kvnode alone has the flags of kvnode
// serve.
func helpOf(cmd *cobra.Command) string {
	if cmd.HasParent() {
		return cmd.CommandPath()
	}
	return "kvnode --help and kvnode serve"
}

// endedBy returns the number of the signal that killed a command, if a signal did.
func endedBy(child *exec.ExitError) (number int, signaled bool) {
	if child == nil {
		return 0, false
	}
	w, ok := child.Sys().(syscall.WaitStatus)
	if !ok || !w.Signaled() {
		return 0, false
	}
	return int(w.Signal()), true
}

const rootLong = `kvnode is a replicated key-value node. It speaks the etcd v3 API and serves linearizable reads from
the leader's memory under a leader lease. kvnode alone is kvnode serve.

Exit codes: 0 all went well, or a server was stopped in order; 1 something failed; 2 the command
line or the configuration is wrong, or asks for what is not there, such as a file or a free port.`

// rootUsage leaves out the flags, since kvnode serve --help shows them.
const rootUsage = `Usage:
  kvnode [flags of kvnode serve]
  kvnode <command>

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

kvnode <command> --help shows more of each.
`

func newRoot(sys *System) *cobra.Command {
	root := &cobra.Command{
		Use:   "kvnode",
		Short: "A replicated key-value node with the etcd v3 API and leader leases",
		Long:  rootLong,
		Args:  settings.NoArgs,
		// run prints errors, once.
		SilenceErrors: true, SilenceUsage: true,
		Version: versionText(),
	}
	root.SetVersionTemplate("{{.Version}}")
	settings.SuggestFlags(root)
	usage := root.UsageTemplate()
	serveWith(root, sys)
	root.SetUsageTemplate(rootUsage)
	usage = strings.ReplaceAll(usage, ".FlagUsages ", ".FlagUsagesWrapped 80 ")
	for _, cmd := range commands(sys) {
		if cmd.Name() != "serve" {
			cmd.SetUsageTemplate(usage)
		}
		root.AddCommand(cmd)
	}
	reflowAll(root)
	return root
}

// commands returns all commands except help and completion, which cobra adds.
func commands(sys *System) []*cobra.Command {
	return []*cobra.Command{
		newServe(sys),
		demo.Command(),
		newStatus(sys),
		newGet(sys),
		newPut(sys),
		newDel(sys),
		newWatch(sys),
		newLock(sys),
		newRedis(sys),
		newSnapshot(sys),
		newImport(sys),
		newWAL(sys),
		newTrace(sys),
		newVersion(sys),
	}
}

// argsUpTo returns a check for one to high arguments, without upper limit if high is negative. An
// error names the missing argument as the command's usage does.
func argsUpTo(high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			name := strings.Fields(cmd.Use)[1]
			return fmt.Errorf("%s: missing %s (usage: %s)", cmd.CommandPath(), strings.TrimSuffix(name, "..."), usageLine(cmd))
		case high >= 0 && len(args) > high:
			return fmt.Errorf("%s: %d arguments, want %d at most: %q is one too many (usage: %s)", cmd.CommandPath(), len(args), high, args[high], usageLine(cmd))
		}
		return nil
	}
}

// usageLine returns the usage of a command.
func usageLine(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }
