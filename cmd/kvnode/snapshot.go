package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/raftwal/fs"
)

func newSnapshot(sys *System) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save a snapshot, look at one, or begin a new cluster with one",
		Long: `Snapshot works on snapshots of kvnode and etcd, and on the data directories of stopped members. What a
restore keeps of etcd's snapshot: see kvnode import --help.`,
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

// warnOfBareStore warns if a file may be a member's database that was copied without its log.
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
	// The timeout is for the data. A port without a member is an error at once.
	if err := c.reach(ctx)[0]; err != nil && !isLate(err) && !errors.Is(err, errStarting) {
		return fmt.Errorf("%s: %w", c.endpoints[0], err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	arrived := path + ".new"
	if _, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), cfg, arrived); err != nil {
		return c.told(err)
	}
	return replace(path, arrived, sys)
}

// replace checks a received snapshot, moves it to path and describes it. A damaged snapshot does not
// replace the file at path, which may be the last good backup.
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
	sayImported(sys, path, info.Etcd)
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

func newSnapshotStatus(sys *System) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status FILE|DATA_DIR",
		Short: "Check a snapshot and describe it",
		Long: `Status reads all of a snapshot, checks it, and prints its hash, newest revision, number of keys and
size. The hash is what etcdctl endpoint hashkv --rev REVISION gives for its cluster. That command
and json print it in decimal, simple in hex, as etcdutl does, table in both.

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

// describe checks a snapshot and prints its contents in the form of output.
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
	sayImported(sys, path, info.Etcd)
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

const restoreLong = `Restore makes the data directory of one member of a new cluster that begins with the keys, revisions
and TTL leases of a snapshot, be it kvnode's or etcd's, or of a member's data directory. Run it for each member, with the same file and the same options but for
--name, --initial-advertise-peer-urls and --data-dir; then start each with kvnode serve and the same
--initial-cluster and --initial-cluster-token.

If a majority of the members is gone for good, stop those that are left, and restore the data directory
of the member with the highest term at the end of its log (of several, the longest log;
docs/operations/repair.md has an exception), or copies of it: all of its log is replayed, whether
committed or not. A copied store.db by itself is a checkpoint, and lacks what was written since. The
directory is not changed, and must not be in use.

The new cluster has an ID of its own, so that members of the old one, and members restored from
another file, are not let in.

The new cluster's terms, and with them the fencing tokens of its leaders, begin 1000000000 above the
snapshot's, so that they are above all that the old cluster may have reached since. If this snapshot,
or an older one, was restored before, and that cluster has run, raise --bump-term beyond what it was
then, by the same number for each member.

The fencing tokens of locks are revisions. If clients may have seen newer revisions than the snapshot's, have them begin anew, with
--bump-revision 1000000000 --mark-compacted: else a watch that goes on from there misses changes, and tokens of locks that were
taken since come again.`

// restoreFlags are the flags of kvnode snapshot restore and kvnode import. Most are etcdutl's.
type restoreFlags struct {
	restore.Config
	cluster, peerURLs string
}

func newSnapshotRestore(sys *System) *cobra.Command {
	return newRestore(sys, &cobra.Command{
		Use:   "restore FILE|DATA_DIR",
		Short: "Make a data directory for a new cluster out of a snapshot, or of a member's data directory",
		Long:  restoreLong,
	})
}

// newRestore turns cmd into the restore command.
func newRestore(sys *System, cmd *cobra.Command) *cobra.Command {
	var f restoreFlags
	cmd.Args, cmd.ValidArgsFunction = argsUpTo(1), completeSnapshot
	defaults := server.Default()
	flags := cmd.Flags()
	flags.StringVar(&f.Name, "name", defaults.Node.Name, "name of this member; unique in the cluster")
	flags.StringVar(&f.DataDir, "data-dir", "", "directory of the data, which must be empty or missing; by default the name and \".kvnode\"")
	flags.StringVar(&f.cluster, "initial-cluster", "", "all members of the new cluster, as name=url,...; by default this one alone")
	flags.StringVar(&f.Token, "initial-cluster-token", defaults.Node.Token, "sets clusters with equal members apart")
	flags.StringVar(&f.peerURLs, "initial-advertise-peer-urls", strings.Join(defaults.AdvertisePeerURLs, ","), "where other members reach this one")
	flags.BoolVar(&f.SkipHashCheck, "skip-hash-check", false, "take a file without its checksum; if its member is left, restore the data directory instead")
	flags.Int64Var(&f.BumpRevision, "bump-revision", 0, "how much to raise the newest revision by")
	flags.BoolVar(&f.MarkCompacted, "mark-compacted", false, "count all that is older than the raised revision as compacted; goes with --bump-revision")
	flags.Uint64Var(&f.BumpTerm, "bump-term", restore.DefaultBumpTerm, "how much to raise the term by, from 1 up; the same for all members")
	flags.Int64Var(&f.QuotaBytes, "quota-backend-bytes", server.DefaultQuotaBytes, "what kvnode serve will be given: a snapshot of etcd's that exceeds it is refused; 0: 2 GiB; negative: no limit")
	if err := cmd.MarkFlagDirname("data-dir"); err != nil {
		panic(err) // there is no such flag
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		f.File = args[0]
		return f.run(sys)
	}
	return cmd
}

func (f *restoreFlags) run(sys *System) error {
	f.PeerURLs = settings.Split(f.peerURLs)
	if f.DataDir == "" {
		f.DataDir = f.Name + ".kvnode"
	}
	f.Cluster = []node.Member{{Name: f.Name, PeerURLs: f.PeerURLs}}
	if f.cluster != "" {
		members, err := settings.ParseMembers(f.cluster)
		if err != nil {
			return usageError{fmt.Errorf("--initial-cluster: %w", err)}
		}
		f.Cluster = members
	}
	if f.MarkCompacted != (f.BumpRevision > 0) {
		return usageError{fmt.Errorf("--bump-revision %d must be above 0 with --mark-compacted, and 0 without", f.BumpRevision)}
	}
	if f.BumpTerm == 0 {
		return usageError{errors.New("--bump-term 0 must be 1 at least, or terms and fencing tokens of the old cluster come again")}
	}
	f.QuotaBytes = max(cmp.Or(f.QuotaBytes, server.DefaultQuotaBytes), 0)
	warnOfBareStore(sys, f.File)
	r, err := restore.Snapshot(f.Config)
	if err != nil {
		return err
	}
	sayReplayed(sys, f.File, r.Replayed)
	sayImported(sys, f.File, r.Imported)
	_, err = fmt.Fprintf(sys.Stdout, "restored %s into %s: member %x of cluster %x, revision %d, in terms above %d\n",
		f.File, f.DataDir, r.MemberID, r.ClusterID, r.Checkpoint.Revision, r.Term)
	return err
}
