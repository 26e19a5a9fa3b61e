package main

const rootShort = "Measure what a leader lease buys, and audit every answer"

const rootLong = `Measure lease reads against every other way to serve a linearizable read.

Begin with "leasebench all --quick": one minute, one report. A measurement of
one part prints its report and writes files only with --out.

  cluster   The whole linearizable read in one process: three kvnode members
            with their logs on disk, and a round trip between peers of 0, 0.2,
            1, 5, 20 and 80 ms. No gRPC, no client's network.
  compare   etcd's client against server processes: kvnode, and side by side
            with it any other etcd v3 endpoint.

The lease check alone is measured by go test -bench TryRead ./leaderlease.

Arms of a comparison differ in one thing. They run on the same cluster, one after
the other in each round, in an order that turns from round to round. Figures are
medians over rounds, with the least and the greatest.

Arms of cluster:
  read-index          a quorum round, shared by the reads that wait, as in etcd
  lease               under the leader's lease, at the leader
  log                 through the log, as a write
  serializable        local state at the leader: not linearizable, no check at
                      all; the ceiling for every other arm
  follower            lease mode at a follower, which asks the leader

Arms of compare are the same with kvnode- before them, and (PEER is the name given to
--start or --peer):
  PEER-linearizable   the peer's own linearizable read
  PEER-serializable   the peer's local state
  kvnode-three-endpoints, PEER-three-endpoints   all members in turn, the default of
                      clientv3
  kvnode-three-endpoints-client   the same with kvnode/client, which finds the leader
  kvnode-fastkv       the same with kvnode/fastkv
  kvnode-put, PEER-put    loads of writes alone; -three-endpoints as above
kvnode-read-index against PEER-linearizable shows the effect of the server, and
kvnode-lease against kvnode-read-index the effect of the lease.

Arms of stale are raft ReadOnlyLeaseBased and leaderlease, those of size and failover
the servers: kvnode, and each PEER. See their --help.

Audit: a read is stale if it is below the version floor, the newest version of its
key that any operation had shown before the read began. The audit must
catch the arms that are wrong on purpose (the value is fetched before the check; a
stale read is labelled a lease read). If it does not, or an arm that must not serve
a stale read did, the exit code is 1.

Failed operations are counted, never dropped, and the report has their texts. Open
loops take latencies from when an operation was due (no coordinated omission).`

const sizeLong = `Measure servers with much data: 1 M keys with values of 256 bytes, or 200,000 with
--quick, which takes about two minutes.

Each server starts as three members with a quota of 8 GiB, three times without data:
for a little data, for all keys, and for a tenth of them in ten versions each. Servers
are measured in alternation. 16 clients load, with 100 puts in a transaction.

  memory   RSS of the members from /proc/PID/status, the mean: just after the load, and
           --warmup later
  stalls   latencies of a client that puts and reads every 10 ms at the leader during the
           load and during the compaction, from when its requests were due
  scans    one key with limit 1, a page of 500, and the count of all keys
  streams  10,000 streams of watches on 16 connections, or one for 100 keys
  compaction --physical, at the newest revision
  restart  the data directory, how soon a member that joins has all keys, and how soon
           a linearizable read is answered after all members were killed

With no --start, etcd is measured beside kvnode if the shell finds one, and kvnode
alone if not. It needs Linux.`

const failoverLong = `Measure how long reads and writes get no answer when the leader dies, with the
defaults of each server: kvnode beside the others, in alternation.

  kill     SIGKILL
  panic    SIGABRT: leasebench's own member panics; in any other program Go's runtime
           prints the stacks of all goroutines, and exits
  term     SIGTERM
  stop     SIGSTOP, and later SIGCONT, which is a row of its own
  cable    the link between the leader's network namespace and the bridge of all
           others goes down, and later up, which is a row of its own
  disk     the ext4 file system with the leader's data is shut down
           (EXT4_IOC_SHUTDOWN): each read, write and sync returns EIO
  two      the leader and a follower of five are killed at once

One client knows all members. Every 5 ms it begins a linearizable read and a write,
each at the next member, with a timeout of a second, and does not wait for earlier
answers. The outage is the longest time from the death on without an answer to a
request that was sent after it; it is over when both kinds have been answered for half
a second. The member is back before the next death. Before stop and cable the leader
has led for 12 s: kvnode learns for ten seconds how regular its leader is. The report
has medians, least and greatest, all samples, and the errors that clients got.

cable needs Linux, ip (iproute2) and the right to make networks: root has it, and
most systems give it to every user in a user namespace. disk needs root, mkfs.ext4
and loop devices. The report names the deaths that had to be left out. Both run in
namespaces of their own, which the kernel removes at the end.

20 rounds take half an hour, --quick (two rounds) three minutes. With no
--start, etcd is measured beside kvnode if the shell finds one.`

const allLong = `Do every part but size, one after the other, and write one report.

The report goes to ` + defaultOut + ` unless --out says otherwise. Of failover it has kill,
panic and term. It takes a minute with --quick, and about half an hour with --start.`
