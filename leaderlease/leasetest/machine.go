package leasetest

import "go.etcd.io/raft/v3/raftpb"

// Machine is the replicated state machine of a node, with its own durable state if it has
// any. The node makes one call at a time.
//
// There are two kinds. A machine that is not durable lives in memory only: the
// snapshot that the log begins with carries its state. A durable one keeps
// checkpoints by itself, apart from the log: after a crash it is back at the
// newest of them, at or behind the end of what the log knows to be committed,
// and the log is replayed from there. The log is never compacted beyond it.
type Machine interface {
	// Command returns the data of an entry by which write, which is unique and
	// above 0, gives key, which is above 0, a new version.
	Command(key, write uint64) []byte
	// Apply applies an entry; conf is what a configuration change leads to, nil
	// for all other entries. An entry at or below Applied changes nothing.
	Apply(e *raftpb.Entry, conf *raftpb.ConfState) Outcome
	// Applied returns the index of the newest entry applied, Conf the
	// configuration as of it.
	Applied() uint64
	Conf() *raftpb.ConfState
	// Read returns the version of key, 0 if it has none, and the newest version
	// of any key, as of one moment. The second is 0 in a machine that does not
	// tell its clients.
	Read(key uint64) (version, newest uint64)
	// Hash is equal on machines that are equal.
	Hash() uint64

	// Durable says which kind it is.
	Durable() bool
	// Checkpoint makes the state as of now durable. Before that, it gives its
	// index to committed, and leaves everything as it is if that fails: the log
	// must know it to be committed. A machine that is not durable does nothing.
	Checkpoint(committed func(index uint64) error) error
	// Snapshot returns the newest checkpoint, for a peer; the state as of now if
	// the machine is not durable.
	Snapshot() (*raftpb.Snapshot, error)
	// Restore replaces the state by a peer's Snapshot, as a whole or not at all,
	// also if the process dies meanwhile. A durable machine is restored before
	// the log begins with the snapshot, another one after that.
	Restore(snap *raftpb.Snapshot) error
	// Reopen returns the machine as a new process finds it, the first one or
	// one after a crash. snap is what the log begins with.
	Reopen(snap *raftpb.Snapshot) (Machine, error)
}

// Outcome is the result of applying an entry.
type Outcome struct {
	// Write is the write that the entry carries and that took effect, 0 if none.
	// Version is what it gave its key: it rises with each write to any key.
	Write, Version uint64
	// Sum stands for everything else that the machine answers. Like the rest, it
	// is the same on every node, and again after a crash.
	Sum uint64
}
