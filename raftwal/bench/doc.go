// Package bench compares raftwal with other logs on the same disk. It is a
// module of its own, so that they are no dependencies of the library:
//
//	cd raftwal/bench && go test -bench InTurn -benchtime 100x -count 6
//
// Every arm makes batches of entries of 256 bytes durable, one after the other,
// with one sync each; only that is timed. The arms are
//
//	append     write behind the end of a file, fdatasync
//	zeros      write into a file that was filled with zeros, fdatasync: the limit
//	raftwal    this module's log, with a checkpoint and compaction every 64 MiB
//	etcd       go.etcd.io/etcd/server/v3/storage/wal
//	raft-wal   github.com/hashicorp/raft-wal
//	bbolt      one go.etcd.io/bbolt transaction for a batch
package bench
