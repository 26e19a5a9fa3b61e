package leaderlease_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// The state machine has its own goroutine, which calls Applied once readers see the entry.
func Example_applyGoroutine() {
	group := openGroup()
	defer group.stop()
	for _, m := range group.members {
		a := &applier{member: m, work: make(chan batch, 64)}
		group.loops.Go(func() { a.run(group.done) })
		group.loops.Go(a.applyAll)
	}

	leader := group.elect(1)
	leader.put("greeting", "hello")
	leader.do(func() error { // member 3 votes no more
		return leader.node.ProposeConfChange(&raftpb.ConfChange{
			Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(3)),
		})
	})
	leader.put("greeting", "hello again")
	leader.ticks <- struct{}{} // a heartbeat to the voters that are left
	leader.await(leaderlease.StatusValid)

	r, err := leader.lease.Read(context.Background()) // waits for the goroutine's Applied
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, served by path %v\n", leader.get("greeting"), r.Path)
	fmt.Println("misuse:", leader.lease.Info().Err)

	// Output:
	// "hello again", served by path lease
	// misuse: <nil>
}

// applier is a member with a goroutine for its state machine.
type applier struct {
	*member
	work chan batch
}

// batch is what one Ready has to apply. done is closed when it is.
type batch struct {
	entries []*raftpb.Entry
	done    chan struct{}
}

// run is member.run, except that handle passes the committed entries to applyAll.
func (a *applier) run(stop <-chan struct{}) {
	defer close(a.work)
	node, lease := a.node, a.lease
	for {
		select {
		case <-a.ticks:
			if lease.Tick() {
				node.Tick()
			}
		case msg := <-a.inbox:
			if lease.Incoming(msg, leaderlease.ProcessID{}) {
				lease.RaiseCommit(node, msg)
				_ = node.Step(msg)
			}
		case id := <-lease.ReadRequests():
			node.ReadIndex(id)
		case call := <-a.calls:
			call()
		case <-stop:
			return
		}
		for node.HasReady() {
			a.handle(node.Ready())
		}
	}
}

func (a *applier) handle(rd raft.Ready) {
	node, lease := a.node, a.lease
	lease.Ready(&rd)
	a.save(rd)
	a.send(rd.Messages)
	// embed:begin
	// The raft loop, after Ready(&rd), persisting and sending:
	b := batch{entries: rd.CommittedEntries, done: make(chan struct{})}
	a.work <- b
	if slices.ContainsFunc(b.entries, changesMembers) {
		<-b.done // rare: ApplyConfChange must come before Advance
	}
	node.Advance(rd)
	// embed:end
}

// applyAll is the goroutine of the state machine.
func (a *applier) applyAll() {
	node, lease := a.node, a.lease
	// embed:begin
	// The goroutine that applies:
	for b := range a.work {
		for _, e := range b.entries {
			if changesMembers(e) { // the loop waits, so node may be touched
				cs := node.ApplyConfChange(confChange(e))
				lease.ApplyConfState(e.GetIndex(), cs)
			} else {
				a.set(e.GetData())
			}
			a.applied.Store(e.GetIndex())
			lease.Applied(e.GetIndex()) // now readers see it
		}
		close(b.done)
	}
	// embed:end
}

func changesMembers(e *raftpb.Entry) bool { return e.GetType() != raftpb.EntryNormal }

func (a *applier) set(data []byte) {
	key, value, _ := strings.Cut(string(data), "=")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.data[key] = value
}
