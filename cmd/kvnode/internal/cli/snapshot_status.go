package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/kvnode/restore"
)

func newSnapshotStatus(sys *System) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status FILE|DATA_DIR",
		Short: "Check a snapshot and describe it",
		Long: `Status reads all of a snapshot, checks it, and prints its hash, newest revision, number of keys and
size. The hash is what etcdctl endpoint hashkv --rev REVISION gives for the cluster that it is of: that
and json have it as a decimal number, simple in hex, as in etcdutl, and table in both.

Of a member's data directory it tells what a restore of that would begin with, and where its log ends:
on standard error, and in json as "replayed".
A snapshot of etcd's is described as well: the hash is then etcd's.
It needs room for a copy of the state in the directory for temporary files.`,
		Args: argsUpTo(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return describe(args[0], output, sys)
		},
		ValidArgsFunction: completeSnapshot,
	}
	cmd.Flags().StringVarP(&output, "write-out", "w", "simple", "simple, table or json")
	return cmd
}

// describe checks a snapshot and prints what it holds.
func describe(path, output string, sys *System) error {
	write, ok := snapshotWriters[output]
	if !ok {
		return usageError{fmt.Errorf("--write-out %q must be simple, table or json", output)}
	}
	info, err := restore.Inspect(path)
	if err != nil {
		return fmt.Errorf("kvnode snapshot status: %w", err)
	}
	warnOfBareStore(sys, path)
	sayReplayed(sys, path, info.Replayed)
	sayImported(sys, path, info.Imported)
	return write(sys.Stdout, newSnapshotLine(&info))
}

// snapshotLine describes a snapshot. The first four names are etcdutl's.
type snapshotLine struct {
	Hash      uint32 `json:"hash"`
	Revision  int64  `json:"revision"`
	TotalKey  int    `json:"totalKey"`
	TotalSize int64  `json:"totalSize"`

	CompactRevision int64  `json:"compactRevision"`
	Versions        int    `json:"versions"`
	TTLLeases       int    `json:"leases"`
	RaftIndex       uint64 `json:"raftIndex"`
	RaftTerm        uint64 `json:"raftTerm"`

	// Replayed is of a data directory only.
	Replayed *replayedLine `json:"replayed,omitempty"`
}

// replayedLine is what sayReplayed says.
type replayedLine struct {
	Entries   uint64 `json:"entries"`
	Last      uint64 `json:"last"`
	Term      uint64 `json:"term"`
	Committed uint64 `json:"committed"`
	Beyond    uint64 `json:"beyond"`
	Torn      string `json:"torn,omitempty"`
	Lost      string `json:"lost,omitempty"`
	Received  uint64 `json:"received,omitempty"`
}

func newSnapshotLine(s *restore.Info) *snapshotLine {
	return &snapshotLine{
		Hash: s.Hash.Hash, Revision: s.Revision, TotalKey: s.Keys, TotalSize: s.Size,
		CompactRevision: s.Hash.CompactRevision, Versions: s.Versions, TTLLeases: s.TTLLeases,
		RaftIndex: s.Index, RaftTerm: s.Term, Replayed: (*replayedLine)(s.Replayed),
	}
}

var snapshotWriters = map[string]func(io.Writer, *snapshotLine) error{
	"simple": func(w io.Writer, l *snapshotLine) error {
		_, err := fmt.Fprintf(w, "%x, %d, %d, %d\n", l.Hash, l.Revision, l.TotalKey, l.TotalSize)
		return err
	},
	"table": func(w io.Writer, l *snapshotLine) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		if _, err := fmt.Fprintf(t, "HASH (HEX)\tHASH (DECIMAL)\tREVISION\tTOTAL KEYS\tTOTAL SIZE\n%x\t%d\t%d\t%d\t%d\n", l.Hash, l.Hash, l.Revision, l.TotalKey, l.TotalSize); err != nil {
			return err
		}
		return t.Flush()
	},
	"json": func(w io.Writer, l *snapshotLine) error { return json.NewEncoder(w).Encode(l) },
}
