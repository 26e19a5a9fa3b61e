// Package fence makes a resource refuse the writes of former leaders and lock holders. It checks a
// fencing token where the write happens.
//
//	var gate fence.Gate                // one per resource, in the process that writes to it
//	token, err := lease.Token()        // the holder takes it when its work begins
//	err = gate.Do(token, func() error { return write(data) })
//
// # Why a lease is not enough
//
// A leader lease protects reads of the replicated state machine, because such a read takes effect at
// the instant at which the lease is checked. A write to something outside the cluster (a file, a
// bucket, a device, another database) takes effect later, and nothing bounds how much later:
//
//	node 1 checks its lease: valid
//	node 1 is paused: garbage collection, a stopped VM, a packet held in a switch
//	the lease ends, node 2 is elected and writes
//	node 1 continues, and its write overwrites node 2's
//
// No lease and no lock can prevent this, since the pause may come after the last check. The resource
// alone knows in which order the writes arrive. The argument, and the name, are from Martin Kleppmann,
// "How to do distributed locking" (8 February 2016,
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// # What is promised
//
// A [Gate] never admits a token below one that it has admitted before. So if every write to a resource
// passes through [Gate.Do], an older holder does not write once a newer one has written.
//
// The old holder may write until the new one has used the gate. A new holder that reads the resource
// before it writes should therefore call [Gate.Admit] first.
//
// # What is assumed
//
//   - Every writer passes through the same gate.
//   - Tokens rise with every change of holder, and two holders never have the same one.
//   - When a write returns, it has taken effect, or never will.
//   - The gate remembers its highest token for as long as an old holder may write. A Gate in memory
//     forgets it with its process: restore it with [NewGate], or use package boltfence, which stores
//     the token in the transaction of the write.
//
// # Where tokens come from
//
// Lease.Token of package leaderlease is (term, commit index). Raft elects at most one leader in a
// term, and the next one has a higher term. Take the token once, when the work begins: one taken later
// in the same term may be higher, and then the gate refuses the earlier one.
//
// In etcd and kvnode the token is the create revision of the lock's key: Token{Index: revision}.
// Revisions grow across fail-over, restart and snapshot.
//
// Tokens of different sources are not comparable. A resource takes its tokens from one source.
//
// A cluster that is restored from a backup repeats the tokens after it, unless its term and revision
// are raised beyond them. kvnode snapshot restore raises the term, and the revision if it is told to.
// An embedder of raft has to raise HardState.Term.
package fence
