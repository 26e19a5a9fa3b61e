package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/raftwal"
)

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
	line("longest promise", "%v", r.MaxPromise)
	line("read", "%d batches, %d entries, %d bytes", r.Batches, r.Entries, r.Bytes)
	if r.Torn != nil {
		line("interrupted batch", "%+v; it will be cut off, as nothing in it was acknowledged", *r.Torn)
	}
	line("verdict", "no damage")
	return t.Flush()
}
