// Package deaths measures for how long a cluster of processes answers no linearizable read
// and acknowledges no write after its leader has died, in each way in which leaders do: as
// seen by a client that knows all members. The servers are kvnode, or what takes etcd's flags.
package failover
