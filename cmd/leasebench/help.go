package main

const rootShort = "Measure what a leader lease buys, and audit every read"

const rootLong = `Measure lease reads against every other way to serve a linearizable read.

Three layers, which are never mixed up in one comparison:

  check     a  The question "may I answer?" alone. Nothing is read.
  cluster   b  The whole linearizable read in one process: three kvnode members
               with their logs on disk, and a round trip between peers that is
               set (0, 0.2, 1, 5, 20, 80 ms). No gRPC, no client's network.
  wire      c  etcd's client against server processes, kvnode or any other
               etcd v3 endpoint.

Arms of a comparison differ in one thing, run on the same cluster, one after the
other, again and again, in an order that turns from round to round. Figures are
medians over rounds, with the least and the greatest.

Arms of check:
  try-read            leaderlease: one lease check
  try-read-of-16      the same, shared by 16 reads that arrived together
  read                leaderlease: a check with its fallback
  lease-clock         one reading of the clock, without which there is no check
  time-now            time.Now()
  rwmutex-time-now    the check one would write at first
  raft-lease-based    raft's own ReadOnlyLeaseBased; its reads may be stale
  raft-safe           raft's ReadOnlySafe, without any transport

Arms of cluster and wire:
  read-index          a quorum round, shared by the reads that wait, as in etcd
  lease               under the leader's lease, at the leader
  log                 through the log, as a write
  serializable        local state at the leader: not linearizable, no check at
                      all; the ceiling for every other arm
  follower            lease mode at a follower, which asks the leader

Arms of compare: kvnode-read-index, kvnode-lease and kvnode-serializable against
PEER-linearizable and PEER-serializable. Compare kvnode-read-index with
PEER-linearizable to see what is our server's doing, and kvnode-lease with
kvnode-read-index to see what is the lease's.

Arms of failover: raft alone (rawnode) with ReadIndex, with leaderlease and with
ReadOnlyLeaseBased; kvnode with and without its lease; server processes.

Audit: every read of every arm is held against a version floor, the newest
version of its key that any operation had shown before the read began. A read
below it is stale. Two arms are wrong on purpose (the value is fetched before the
check; a stale read is labelled a lease read) and must be caught. If an arm that
promises linearizable reads served a stale one, the exit code is 1.

Operations that fail are counted beside those that do not, never dropped. Open
loops take latencies from when an operation was due (no coordinated omission).`
