// Package restore makes the data directory of a member of a new cluster, from a snapshot of
// kvnode's or etcd's, or from the data directory of a member that does not run. It also
// describes and checks these. The command kvnode snapshot calls it; no node runs meanwhile.
package restore
