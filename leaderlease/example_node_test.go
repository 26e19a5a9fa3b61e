package leaderlease_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// StartNode makes a raft.Node behind its lease; RestartNode does so for
// all but a new group. The loop around the Node is that of any raft.Node, except that it calls Applied.
func ExampleStartNode() {
	// A group of one elects itself; with more members nothing changes here.
	const tickInterval = time.Millisecond
	storage := raft.NewMemoryStorage()
	config := &raft.Config{
		ID: 1, Storage: storage, ElectionTick: 10, HeartbeatTick: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 64, Logger: silent{},
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true, // the lease insists
	}
	node, lease, err := leaderlease.StartNode(config, leaderlease.Config{TickInterval: tickInterval}, []raft.Peer{{ID: 1}})
	if err != nil {
		log.Fatal(err)
	}

	done, applied := make(chan struct{}), make(chan string, 1)
	var loop sync.WaitGroup
	loop.Go(func() {
		ticker := time.NewTicker(tickInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				node.Tick()
			case rd := <-node.Ready():
				_ = storage.Append(rd.Entries)
				if !raft.IsEmptyHardState(rd.HardState) {
					_ = storage.SetHardState(rd.HardState)
				}
				// Here rd.Messages go to the peers. Messages from peers go to node.Step.
				for _, e := range rd.CommittedEntries {
					apply(node, e, applied)
					lease.Applied(e.GetIndex()) // the one new line
				}
				node.Advance()
			case <-done:
				return
			}
		}
	})

	events, stop := lease.Watch()
	for e := range events {
		if e.Held { // this node leads
			break
		}
	}
	stop()

	ctx := context.Background()
	if err := node.Propose(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("applied:", <-applied)
	r, err := lease.Read(ctx)
	fmt.Println("read by path:", r.Path, err)

	node.Stop() // gives the lease up, too
	close(done)
	loop.Wait()

	// Output:
	// applied: hello
	// read by path: lease <nil>
}

// apply is the state machine's part.
func apply(node raft.Node, e *raftpb.Entry, applied chan<- string) {
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		cc := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			log.Fatal(err)
		}
		node.ApplyConfChange(cc) // the wrapper tells the lease
	case len(e.GetData()) > 0:
		applied <- string(e.GetData())
	}
}
