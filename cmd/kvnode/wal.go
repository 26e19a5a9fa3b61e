package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/restore"
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

func newWALDump(sys *System) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print every record of a log, also those that later ones have made void",
		Args:  argsUpTo(1),
		RunE: func(_ *cobra.Command, args []string) error {
			write, ok := dumps[output]
			if !ok {
				return usageError{fmt.Errorf("--output %q must be text or json", output)}
			}
			w := bufio.NewWriter(sys.Stdout)
			_, err := readWAL(sys, args[0], func(r *raftwal.Record) error { return write(w, newLine(r)) })
			// The records before the damage help to find its cause.
			if flushed := w.Flush(); err == nil {
				err = flushed
			}
			return err
		},
		ValidArgsFunction: completeDir,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json: one object a line")
	return cmd
}

// line is one record. Fields that its kind does not have are left out.
type line struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Batch  uint64 `json:"batch"`
	Kind   string `json:"kind"`

	Index     uint64  `json:"index,omitempty"`
	Term      uint64  `json:"term,omitempty"`
	Type      string  `json:"type,omitempty"`
	Size      int     `json:"size,omitempty"`
	Command   string  `json:"command,omitempty"`
	Vote      string  `json:"vote,omitempty"`
	Commit    uint64  `json:"commit,omitempty"`
	Install   bool    `json:"install,omitempty"`
	PromiseMS float64 `json:"promise_ms,omitempty"`
}

func newLine(r *raftwal.Record) *line {
	l := &line{File: r.File, Offset: r.Offset, Batch: r.Batch, Kind: r.Kind, PromiseMS: float64(r.Promise.Microseconds()) / 1000}
	switch {
	case r.Entry != nil:
		l.Index, l.Term = r.Entry.GetIndex(), r.Entry.GetTerm()
		l.Type, l.Size = r.Entry.GetType().String(), len(r.Entry.GetData())
		l.Command = restore.DescribeEntry(r.Entry)
	case r.HardState != nil:
		l.Term, l.Vote, l.Commit = r.HardState.GetTerm(), strconv.FormatUint(r.HardState.GetVote(), 16), r.HardState.GetCommit()
	case r.Snapshot != nil:
		m := r.Snapshot.GetMetadata()
		l.Index, l.Term, l.Size, l.Install = m.GetIndex(), m.GetTerm(), len(r.Snapshot.GetData()), r.Install
	default:
		l.Index, l.Term = r.BaseIndex, r.BaseTerm
	}
	return l
}

var dumps = map[string]func(io.Writer, *line) error{"text": printText, "json": printJSON}

func printJSON(w io.Writer, l *line) error { return json.NewEncoder(w).Encode(l) }

func printText(w io.Writer, l *line) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%-10d batch=%d %s", l.File, l.Offset, l.Batch, l.Kind)
	for _, f := range []struct {
		name  string
		value any
		shown bool
	}{
		{"index", l.Index, l.Index != 0},
		{"term", l.Term, l.Term != 0},
		{"vote", l.Vote, l.Vote != ""},
		{"commit", l.Commit, l.Commit != 0},
		{"type", l.Type, l.Type != ""},
		{"size", l.Size, l.Type != "" || l.Size != 0},
		{"install", l.Install, l.Install},
		{"promise_ms", l.PromiseMS, l.PromiseMS != 0},
		{"command", l.Command, l.Command != ""},
	} {
		if f.shown {
			fmt.Fprintf(&b, " %s=%v", f.name, f.value)
		}
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

func newWALVerify(sys *System) *cobra.Command {
	return &cobra.Command{
		Use:               "verify DIR",
		Short:             "Check a log, and say what it holds",
		Args:              argsUpTo(1),
		ValidArgsFunction: completeDir,
		RunE: func(_ *cobra.Command, args []string) error {
			report, err := readWAL(sys, args[0], func(*raftwal.Record) error { return nil })
			if err != nil {
				return err
			}
			return printReport(sys.Stdout, report)
		},
	}
}

func printReport(w io.Writer, r *raftwal.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		// Writes go to t's memory, which does not fail; Flush does.
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	for _, s := range r.Segments {
		line("segment", "%s: %d bytes, from index %d, batch %d", s.Name, s.Size, s.NextIndex, s.FirstBatch)
	}
	line("entries", "%d to %d", r.FirstIndex, r.LastIndex)
	if hs := r.HardState; hs != nil {
		line("hard state", "term %d, vote %x, commit %d", hs.GetTerm(), hs.GetVote(), hs.GetCommit())
	}
	if s := r.Snapshot; s != nil {
		line("snapshot", "index %d, term %d, voters %x, learners %x",
			s.GetIndex(), s.GetTerm(), s.GetConfState().GetVoters(), s.GetConfState().GetLearners())
	}
	line("longest promise", "%v", r.LongestPromise)
	line("read", "%d batches, %d entries, %d bytes", r.Batches, r.Entries, r.Bytes)
	if r.Torn != nil {
		line("interrupted batch", "%+v; it will be cut off, as nothing in it was acknowledged", *r.Torn)
	}
	line("verdict", "no damage")
	return t.Flush()
}
