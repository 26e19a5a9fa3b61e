package main

import (
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
	"github.com/leaderlease/go/internal/testcluster"
)

// sizeFlags say how much data servers hold.
type sizeFlags struct {
	serverFlags
	keys int
}

const (
	sizeKeys      = 1_000_000
	quickSizeKeys = 200_000
	leastSizeKeys = 100
	mostSizeKeys  = 10_000_000
)

func newSize(c *common) *cobra.Command {
	f := &sizeFlags{}
	cmd := &cobra.Command{
		Use: "size", Short: "memory, stalls and scans of servers with much data, side by side",
		Long: sizeLong, Example: "  leasebench size --quick --start etcd=./etcd\n  leasebench size --start etcd=./etcd",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runTimed(cmd, sizeTiming(false), sizeTiming(true), func(s *bench.Suite, t bench.Timing) error {
				return f.add(s, t, c.quick && !cmd.Flags().Changed("keys"))
			})
		},
	}
	f.registerStart(cmd)
	cmd.Flags().IntVar(&f.keys, "keys", sizeKeys, "number of keys, of which a tenth is measured with ten versions each; with --quick 200,000")
	return cmd
}

// add plans the measurement.
func (f *sizeFlags) add(s *bench.Suite, t bench.Timing, quick bool) error {
	servers, err := f.servers()
	if err != nil {
		return err
	}
	p := bench.SizePlan{Timing: t, Servers: servers, Keys: f.keys}
	if quick {
		p.Keys = quickSizeKeys
	}
	if p.Keys < leastSizeKeys || p.Keys > mostSizeKeys {
		return fmt.Errorf("keys %d must be in [%d, %d]", p.Keys, leastSizeKeys, mostSizeKeys)
	}
	if len(f.starts) == 0 {
		p.Servers = append(p.Servers, localEtcd(s)...)
	}
	s.Size(p)
	return nil
}

// localEtcd returns the etcd on PATH, if there is one, and adds a note.
func localEtcd(s *bench.Suite) []bench.Server {
	path, err := exec.LookPath("etcd")
	if err != nil {
		s.Report.Note("No etcd was found, so kvnode was measured alone. Build one: go build -C bench/etcd -o FILE . && leasebench … --start etcd=FILE")
		return nil
	}
	s.Report.Note("etcd is the one that the shell finds by that name; --start etcd=FILE names another.")
	return []bench.Server{{Name: "etcd", Program: &testcluster.Program{Name: "etcd", Path: path}}}
}
