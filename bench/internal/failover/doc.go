// Package failover measures how long a cluster of processes answers no linearizable read
// and acknowledges no write after its leader has died, in several ways, as a client sees it
// that knows all members. The servers are kvnode, or any program that takes etcd's flags.
package failover
