package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

func newTrace(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Judge what leader leases have decided, or show it",
		Args:  settings.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "judge FILE...",
		Short: "Hold the traces of a cluster's members against the rules",
		Long: `Judge reads what members have written with --lease-trace, a file a member, and says up to where each
process was judged. The exit code is 0 if the rules allow every event in the files, and 1 if they do
not, or if something is missing in between, behind which nothing can be judged.`,
		Args: argsUpTo(-1),
		RunE: func(_ *cobra.Command, files []string) error { return judge(sys, files) },
	}, &cobra.Command{
		Use:   "page FILE...",
		Short: "Show the traces of a cluster's members as a page for a browser",
		Long: `Page writes one HTML file to standard output that shows what members have written with --lease-trace,
a lane for each: which member held the lease, until when, with which margin, and what happened. It needs
nothing else, so it can be sent with the report of a bug. Members are called as their files.`,
		Example: "  kvnode trace page n1.trace n2.trace n3.trace > page.html",
		Args:    argsUpTo(-1),
		RunE:    func(_ *cobra.Command, files []string) error { return page(sys, files) },
	})
	return cmd
}

func judge(sys *System, files []string) error {
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		return fmt.Errorf("kvnode trace: %w", err)
	}
	v := leasetrace.Judge(all)
	if _, err := fmt.Fprintln(sys.Stdout, v); err != nil {
		return err
	}
	if err := v.Err(); err != nil {
		return fmt.Errorf("kvnode trace: %w", err)
	}
	return nil
}

func page(sys *System, files []string) error {
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		return fmt.Errorf("kvnode trace: %w", err)
	}
	names := make(map[uint64]string)
	for _, name := range files {
		if id, alone := writer(name); alone && names[id] == "" {
			names[id], _, _ = strings.Cut(filepath.Base(name), ".")
		}
	}
	return leasepage.Write(sys.Stdout, leasepage.Draw(all, names))
}

// writer returns the ID of the member that wrote a trace file. alone is false for a merged file.
func writer(name string) (id uint64, alone bool) {
	f, err := os.Open(name)
	if err != nil {
		return 0, false
	}
	some, err := leasetrace.Read(io.LimitReader(f, 1<<20))
	if err = errors.Join(err, f.Close()); err != nil || len(some) == 0 {
		return 0, false
	}
	id = some[0].Start.ID
	return id, !slices.ContainsFunc(some, func(p leasetrace.Process) bool { return p.Start.ID != id })
}
