package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/restore"
)

func newSnapshot(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save a snapshot, look at one, or begin a new cluster with one",
		Long: `Snapshot works on the files that it saves, or etcdctl snapshot save, of kvnode and of etcd, and on the
data directories of members that do not run. What is restored of etcd's is in kvnode import --help.`,
		Args: settings.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.AddCommand(newSnapshotSave(sys), newSnapshotStatus(sys), newSnapshotVerify(sys), newSnapshotRestore(sys))
	return cmd
}

// completeSnapshot has the shell offer files.
func completeSnapshot(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// warnOfBareStore warns of a file that may be a member's checkpoint by itself.
func warnOfBareStore(sys *System, path string) {
	if advice := restore.AdviseBareStore(path); advice != "" {
		_, _ = fmt.Fprintf(sys.Stderr, "WARNING: %s has no checksum: %s\n", path, advice)
	}
}

// sayReplayed says what the log of a data directory has added to its checkpoint.
func sayReplayed(sys *System, path string, r *restore.Replayed) {
	if r == nil {
		return
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(sys.Stderr, format+"\n", args...) }
	say("replayed %d entries of the log in %s, which ends at index %d in term %d; %d of them are beyond index %d, the last that this member knew to be committed",
		r.Entries, path, r.Last, r.Term, r.Beyond, r.Committed)
	if r.Received != 0 {
		say("a snapshot of index %d, which another member had sent, is newer than the log, and takes its place", r.Received)
	}
	if r.Torn != "" {
		say("WARNING: the last write to the log was interrupted, and is left out: this member had not acknowledged it (%s)", r.Torn)
	}
	if r.Lost != "" {
		say("WARNING: this member had been told that it lacks what it had acknowledged, so what is restored may lack it: %s", r.Lost)
	}
}
