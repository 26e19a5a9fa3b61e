// Package restore makes the data directory of a member of a new cluster from a snapshot of
// kvnode or etcd, or from the data directory of a member that has stopped. It also checks and
// describes these sources. The commands kvnode snapshot and kvnode import call it.
//
// Invariants:
//   - No node runs. A source is only read. A data directory is locked while it is read or made.
//   - member.json is written last, so a restore that was interrupted leaves a directory that no
//     member starts with.
//   - Equal sources and options make equal cluster IDs, and other ones make other IDs. So all
//     members restored from one source form one cluster, which rejects all other members.
//   - The new cluster's terms are above all terms that the source knows.
package restore
