package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/kvnode/server"
)

const restoreLong = `Restore makes the data directory of one member of a new cluster that begins with the keys, revisions
and TTL leases of a snapshot, be it kvnode's or etcd's, or of a member's data directory. Run it for each member, with the same file and the same options but for
--name, --initial-advertise-peer-urls and --data-dir; then start each with kvnode serve and the same
--initial-cluster and --initial-cluster-token.

If a majority of the members is gone for good, stop those that are left, and restore the data directory
of the member with the longest log, or copies of it: all of its log is replayed, so nothing that was
acknowledged is missing. A copied store.db by itself is a checkpoint, and lacks what was written since.
The directory is not changed, and must not be in use.

The new cluster has an ID of its own, so that members of the old one, and members restored from
another file, are not let in.

The new cluster's terms, and with them the fencing tokens of its leaders, begin 1000000000 above the
snapshot's, so that they are above all that the old cluster may have reached since. If this snapshot,
or an older one, was restored before, and that cluster has run, raise --bump-term beyond what it was
then, by the same number for each member.

The fencing tokens of locks are revisions. If clients may have seen newer revisions than the snapshot's, have them begin anew, with
--bump-revision 1000000000 --mark-compacted: else a watch that goes on from there misses changes, and tokens of locks that were
taken since come again.`

// restoreFlags are etcdutl's.
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

// newRestore adds to cmd what it takes to run a restore.
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
	flags.BoolVar(&f.SkipHashCheck, "skip-hash-check", false, "take a file without its checksum; of a member that is left, restore the data directory instead")
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
