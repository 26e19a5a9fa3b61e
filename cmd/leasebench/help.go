package main

const rootShort = "Measure what a leader lease buys, and audit every answer"

const rootLong = `Measure lease reads against every other way to serve a linearizable read.

Begin with "leasebench all --quick": two minutes, one report. A measurement of
one part prints its report and writes files only with --out.

Three layers, which are never mixed up in one comparison:

  check     a  The question "may I answer?" alone. Nothing is read.
  cluster   b  The whole linearizable read in one process: three kvnode members
               with their logs on disk, and a round trip between peers that is
               set (0, 0.2, 1, 5, 20, 80 ms). No gRPC, no client's network.
  wire      c  etcd's client against server processes, kvnode or any other
               etcd v3 endpoint. compare, size and failover are of this layer,
               too, and measure several servers side by side.

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
  three-endpoints     lease mode at all members in turn, as clientv3 comes
  three-endpoints-client  the same with kvnode/client, which finds the leader

Arms of compare (PEER is the name given to --start or --peer):
  kvnode-read-index   a quorum round, with kvnode
  kvnode-lease        under the leader's lease, with kvnode
  kvnode-serializable local state, with kvnode
  PEER-linearizable   the peer's own linearizable read
  PEER-serializable   the peer's local state
  kvnode-three-endpoints, PEER-three-endpoints   all members in turn, as clientv3 comes
  kvnode-three-endpoints-client   the same with kvnode/client
  kvnode-put, PEER-put    writes, where nothing is read; -three-endpoints as above
Compare kvnode-read-index with PEER-linearizable to see what is our server's
doing, and kvnode-lease with kvnode-read-index to see what is the lease's.

Arms of stale:
  raft ReadOnlyLeaseBased, leaderlease    the same partitions, in virtual time

Arms of size and failover are the servers: kvnode, and each PEER. See their
--help for what they do.

Audit: every read of every arm is held against a version floor, the newest
version of its key that any operation had shown before the read began. A read
below it is stale. The audit must catch the arms that are wrong on purpose (the
value is fetched before the check; a stale read is labelled a lease read). If it
does not, or an arm that must not serve a stale read did, the exit code is 1.

Operations that fail are counted beside those that do not, never dropped, and
the report says what they said. Open loops take latencies from when an operation
was due (no coordinated omission).`

const sizeLong = `Measure what servers cost that hold much: 1 M keys with values of 256 bytes, or
200,000 with --quick, which takes about two minutes.

Each server is started as three members with a quota of 8 GiB, three times from
nothing: with little data, with all keys, with a tenth of them in ten versions
each. Servers are measured in alternation and idle meanwhile. 16 clients load,
with 100 puts in a transaction.

  memory   RSS of the members from /proc/PID/smaps_rollup, the mean, the largest, and
           by kind: anonymous is only theirs, what is of files the system may take
           back. At once after the load, and --warmup later.
  stalls   a client that puts and reads every 10 ms at the leader while others load
           and while versions are compacted, from when its requests were due
  scans    one key with limit 1, a page of 500, and the count of all keys
  streams  10,000 streams of watches on 16 connections
  compaction --physical, at the newest revision: what is in use when it returns
  restart  the data directory, how soon a member that joins has all keys, and how soon
           a linearizable read is answered when all members were killed

With no --start, etcd is measured beside kvnode if the shell finds one, and kvnode
alone if not. It needs Linux.`

const failoverLong = `Measure how long reads and writes get no answer when the leader dies, with the
defaults of each server: kvnode beside the others, in alternation.

  kill     SIGKILL
  panic    SIGABRT: leasebench's own member panics; in any other program Go's runtime
           prints the stacks of all goroutines, and exits
  term     SIGTERM
  stop     SIGSTOP, and later SIGCONT, which is a row of its own
  cable    the leader has a network of its own, and the cable between that and the
           switch at which all others and the client are is pulled, and put back
  disk     the leader's data is on an ext4 file system of its own, which fails as a
           whole (EXT4_IOC_SHUTDOWN): each read, write and sync says EIO
  two      the leader and a follower of five are killed at once

One client knows all members. Every 5 ms it begins a read (linearizable) and a write,
each at the next member, and waits a second for each answer, whatever becomes of
the others. Away is the longest time from the death on in which none was answered
that had been asked for after it, until both have been back for half a second.
What has died comes back before the next one dies. Before stop and cable the leader
has led for 12 s: kvnode learns for ten from how silent its leader is while it lives.
Medians, least and greatest, all samples, and what clients were told instead of an
answer, are in the text.

cable needs Linux, ip (iproute2) and the right to make networks: root has it, and
most systems give it to every user in a user namespace. disk needs root, mkfs.ext4
and loop devices. What cannot be done is left out, and the report says so. Both
run in namespaces of their own, of which nothing is left.

20 rounds take half an hour, --quick (two rounds) three minutes. With no
--start, etcd is measured beside kvnode if the shell finds one.`

const allLong = `Do every part, one after the other, and write one report.

The report goes to ` + defaultOut + ` unless --out says otherwise: text, and text
for benchstat. With --start or --peer there is also compare. Of failover it has
kill, panic and term. What it will take, about:

`
