package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/kvnode/restore"
)

const importLong = `Import makes the data directory of one member of a new cluster from a snapshot that etcdctl saved
of etcd 3.7 or older. Run it for each member, with the same file and the same options but for --name,
--initial-advertise-peer-urls and --data-dir; then start each with kvnode serve and the same --initial-cluster
and --initial-cluster-token. It is kvnode snapshot restore by another name.

Keys are kept with all their versions since the last compaction, so that clients and watches go on from the
revisions that they know. Each TTL lease is kept with its ID and its keys, and begins anew. Members are not kept.
Users and roles are refused: kvnode has none.

Stop the clients before the snapshot is saved. If some have seen revisions newer than the snapshot's, have them
begin anew, with --bump-revision 1000000000 --mark-compacted.`

func newImport(sys *System) *cobra.Command {
	return newRestore(sys, &cobra.Command{
		Use:   "import FILE",
		Short: "Make a data directory for a new cluster out of a snapshot of etcd's",
		Long:  importLong,
	})
}

// sayImported prints the contents of an etcd file, and the hash that etcdctl endpoint hashkv shows for it.
func sayImported(sys *System, path string, s *restore.Imported) {
	if s == nil {
		return
	}
	_, _ = fmt.Fprintf(sys.Stderr, "%s is etcd's, of storage version %s: %d keys in %d versions, %d TTL leases, which begin anew; etcdctl endpoint hashkv --rev %d of that etcd is %d\n",
		path, cmp.Or(s.StorageVersion, "3.5 or older"), s.Keys, s.Versions, s.TTLLeases, s.Revision, s.Hash.Hash)
	if s.Detached > 0 {
		_, _ = fmt.Fprintf(sys.Stderr, "WARNING: %d keys name TTL leases that etcd does not have: they are imported without, and stay until they are deleted\n", s.Detached)
	}
	if s.Refused != nil {
		_, _ = fmt.Fprintf(sys.Stderr, "WARNING: %v\n", s.Refused)
	}
}
