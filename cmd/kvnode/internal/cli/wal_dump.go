package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/raftwal"
)

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
			// What was read before the damage helps to see it.
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

// line is one record. What its kind does not have is left out.
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
		l.Command = restore.Command(r.Entry)
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
