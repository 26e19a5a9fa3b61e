package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"

	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/raftwal/fs"
)

func newSnapshotSave(sys *System) *cobra.Command {
	c := &caller{}
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save what a member has to a file, and check it",
		Long: `Save asks one member for all that it has, checks what it got, and prints it as snapshot status does.
FILE is replaced once all has arrived, is on disk, and is whole; what is not whole is kept as FILE.damaged.
A member that lags, or is cut off, gives what it has: ask the leader (kvnode status) for a backup.`,
		Args: argsUpTo(1),
		RunE: func(cmd *cobra.Command, args []string) error { return save(cmd.Context(), c, args[0], sys) },
	}
	c.flags(sys, cmd.Flags(), 10*time.Minute)
	return cmd
}

func save(ctx context.Context, c *caller, path string, sys *System) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if len(c.endpoints) != 1 {
		return usageError{fmt.Errorf("--endpoints %q must be one member", c.endpoints)}
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a rename by root replaces /dev/null
		return usageError{fmt.Errorf("FILE %s is there and no regular file", path)}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	if err := c.mismatched(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	arrived := path + ".new"
	if _, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), cfg, arrived); err != nil {
		return c.told(err)
	}
	return replace(path, arrived, sys)
}

// replace puts a snapshot that has arrived in the place of path, if it is whole: what is there may be the
// last backup that is. It describes it.
func replace(path, arrived string, sys *System) error {
	info, err := restore.Inspect(arrived)
	if err != nil {
		bad := path + ".damaged"
		return errors.Join(fmt.Errorf("what has arrived is kept as %s, and %s is as it was: %w", bad, path, err), os.Rename(arrived, bad))
	}
	if err := os.Rename(arrived, path); err != nil {
		return errors.Join(err, os.Remove(arrived))
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	sayImported(sys, path, info.Imported)
	return snapshotWriters["simple"](sys.Stdout, newSnapshotLine(&info))
}

func newSnapshotVerify(sys *System) *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE|DATA_DIR...",
		Short: "Check snapshots",
		Long: `Verify reads all of each snapshot, compares it with its checksum, and prints a line of each that is whole.
It exits with 1 at the first that is not.`,
		Args:              argsUpTo(-1),
		ValidArgsFunction: completeSnapshot,
		RunE: func(_ *cobra.Command, files []string) error {
			for _, path := range files {
				info, err := restore.Inspect(path)
				if err != nil {
					return fmt.Errorf("kvnode snapshot verify: %s: %w", path, err)
				}
				warnOfBareStore(sys, path)
				if _, err := fmt.Fprintf(sys.Stdout, "%s: whole, revision %d, %d keys, hash %x\n", path, info.Revision, info.Keys, info.Hash.Hash); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
