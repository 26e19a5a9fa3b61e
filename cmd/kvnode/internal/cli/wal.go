package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/raftwal"
)

// walDir is where a node keeps its log below its data directory.
const walDir = "wal"

func newWAL(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wal",
		Short: "Look at a member's log on disk",
		Long: `Wal reads a member's log on disk and changes nothing. DIR is the data directory or the log's own
directory. If the log is damaged, the place and the reason are printed and the exit code is 1.`,
		Args: settings.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(newWALDump(sys), newWALVerify(sys))
	return cmd
}

// completeDir has the shell offer directories.
func completeDir(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// logDir returns the log's directory for DIR.
func logDir(dir string) (string, error) {
	below := filepath.Join(dir, walDir)
	if info, err := os.Stat(below); err == nil && info.IsDir() {
		return below, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return dir, nil
}

// readWAL reads the log in dir, shows each record and a bar on the way, and
// explains a failure.
func readWAL(sys *System, dir string, show func(*raftwal.Record) error) (*raftwal.Report, error) {
	report, err := dumpWAL(sys, dir, show)
	if err != nil {
		return nil, fmt.Errorf("kvnode wal: %w", err)
	}
	return report, nil
}

func dumpWAL(sys *System, dir string, show func(*raftwal.Record) error) (*raftwal.Report, error) {
	dir, err := logDir(dir)
	if err != nil {
		return nil, err
	}
	bar := newBar(sys, dir)
	report, err := raftwal.Dump(raftwal.Config{Dir: dir}, func(r *raftwal.Record) error {
		bar.at(r)
		return show(r)
	})
	bar.finish()
	if errors.Is(err, raftwal.ErrEmpty) {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if corrupt, ok := errors.AsType[*raftwal.CorruptError](err); ok {
		return nil, fmt.Errorf("damaged: file %s, offset %d: %s", filepath.Join(dir, corrupt.File), corrupt.Offset, corrupt.Reason)
	}
	return report, err
}
