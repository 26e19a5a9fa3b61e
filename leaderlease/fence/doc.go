// Package fence is the resource's side of fencing tokens: a check, made where
// the write happens, that refuses overtaken holders.
//
// # Why a lease is not enough
//
// A leader lease protects reads of the replicated state machine, because such
// a read takes effect at the instant at which the lease is checked. A write to
// something outside the cluster (a file, a bucket, a device, another
// database) takes effect later, and nothing bounds how much later:
//
//	node 1 checks its lease: valid
//	node 1 is paused: garbage collection, a stopped VM, a packet held in a switch
//	the lease ends, node 2 is elected and writes
//	node 1 goes on where it stopped, and its write lands on top of node 2's
//
// No lease and no lock can prevent this, however short it is and however often
// the holder asks, since the pause may come after the last question. The
// resource alone knows in which order the writes arrive, so the resource has
// to decide. The argument, and the name, are from Martin Kleppmann, "How to do
// distributed locking" (8 February 2016,
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// # What it promises
//
// A [Gate] never admits a token below one that it has admitted before. Put in
// front of every write to one resource, through [Gate.Do], it therefore keeps
// the writes in the order of their tokens: once the newer holder has written,
// no older holder writes again, provided that
//   - every writer passes through the same gate (a second way in is no fence),
//   - tokens rise with every change of holder, and two holders never have the
//     same one,
//   - a write has either taken effect or never will when it returns, and
//   - the gate remembers its highest token for as long as an old holder may
//     wake up. A Gate in memory forgets with its process: restore it with
//     [NewGate], or use package boltfence, which stores the highest token in
//     the same transaction as the write.
//
// It does not promise that the old holder stops before the new one has come
// to the gate: until then the old one is the newest that the resource knows
// of. A new holder that reads the resource before it writes should therefore
// close the door first, with [Gate.Admit].
//
// # Where tokens come from
//
//   - Lease.Token of package leaderlease is (term, commit index). Raft elects
//     at most one leader in a term, and the next one has a higher term. Take
//     the token once, when the work begins: one taken later in the same term
//     is higher and fences the earlier one off.
//   - In etcd and kvnode it is the create revision of the key that stands for
//     the lock: Token{Index: revision}. Revisions grow across fail-over,
//     restart and snapshot.
//
// A cluster that is restored from a backup knows nothing of the tokens that were
// given after it, and gives them again unless its term and its revision are raised
// beyond them: kvnode snapshot restore raises the term, and the revision if it is
// told to. The embedder of raft has to raise HardState.Term.
//
// Tokens of different sources are not comparable. A resource takes its tokens
// from one source.
package fence
