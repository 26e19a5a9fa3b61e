// Command three is a Raft group of three members in one goroutine. Its leader
// reads from its own memory while its lease is valid.
package main

import (
	"fmt"
	"io"
	"log"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

const tick = 10 * time.Millisecond

func main() {
	raft.SetLogger(&raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}) // raft logs each election
	var network []*raftpb.Message
	send := func(msgs []*raftpb.Message) { network = append(network, msgs...) }
	var disks [3]*raft.MemoryStorage
	var nodes [3]*raft.RawNode
	var leases [3]*leaderlease.Lease
	for i := range nodes {
		disks[i] = raft.NewMemoryStorage()
		_ = disks[i].ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{ // a new group begins with its members
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}})
		// embed:begin
		config := &raft.Config{
			ID: uint64(i + 1), Storage: disks[i], Applied: 1, ElectionTick: 10, HeartbeatTick: 1, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true, // the lease insists on these
		}
		node, lease, err := leaderlease.NewRawNode(config, leaderlease.Config{TickInterval: tick, Send: send})
		// embed:end
		if err != nil {
			panic(err)
		}
		nodes[i], leases[i] = node, lease
	}
	// embed:begin
	for reads := 0; reads < 5; time.Sleep(tick) {
		inbox := network
		network = nil
		for _, msg := range inbox {
			if to := msg.GetTo() - 1; leases[to].Incoming(msg, leaderlease.ProcessID{}) {
				leases[to].RaiseCommit(nodes[to], msg)
				_ = nodes[to].Step(msg)
			}
		}
		for i, node := range nodes {
			if leases[i].Tick() {
				node.Tick()
			}
			for node.HasReady() {
				rd := node.Ready()
				leases[i].Ready(&rd) // before all else: it replaces rd.Messages
				if !raft.IsEmptyHardState(rd.HardState) {
					_ = disks[i].SetHardState(rd.HardState) // the term, and the vote in it
				}
				_ = disks[i].Append(rd.Entries) // where storage can fail, the member must stop
				send(rd.Messages)
				for _, entry := range rd.CommittedEntries {
					leases[i].Applied(entry.GetIndex()) // once the state machine shows it
				}
				node.Advance(rd)
			}
			if _, status := leases[i].TryRead(); status == leaderlease.StatusValid {
				reads++
				fmt.Printf("member %d may read from its own memory for another %v\n", i+1, leases[i].Info().Remaining)
			}
		}
	}
	// embed:end
}
