package raftwal_test

import (
	"fmt"
	"log"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// What a Ready wants to keep is saved before its messages leave. After a crash it is
// there: here the power fails, and the disk keeps nothing that was not synced.
func Example() {
	disk := fs.NewMemory() // a service names Config.Dir instead
	wal, err := raftwal.Open(raftwal.Config{FS: disk, SegmentSize: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	entries := []*raftpb.Entry{
		{Index: new(uint64(1)), Term: new(uint64(1)), Data: []byte("a")},
		{Index: new(uint64(2)), Term: new(uint64(1)), Data: []byte("b")},
	}
	hard := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(3)), Commit: new(uint64(1))}
	if err := wal.Save(entries, hard, nil); err != nil { // rd.Entries, rd.HardState, rd.Snapshot
		log.Fatal(err)
	}

	crashed := disk.Crash(fs.Nothing, nil)
	_ = wal.Close() // too late for the disk that is read again
	again, err := raftwal.Open(raftwal.Config{FS: crashed, SegmentSize: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	last, err := again.LastIndex() // a Log is the raft.Storage of raft.Config
	if err != nil {
		log.Fatal(err)
	}
	found, _, err := again.InitialState()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("last entry:", last)
	fmt.Println("term, vote, commit:", found.GetTerm(), found.GetVote(), found.GetCommit())

	// Output:
	// last entry: 2
	// term, vote, commit: 1 3 1
}
