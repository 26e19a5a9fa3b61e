package kvnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// maxUncommittedBytes is what a leader has raft take that is not applied, and each
	// follower's share of what waits for that. One message is taken however large it is. More: a
	// leader whose quorum is slow keeps that much in memory, and as much again for each follower.
	// Less: large writes wait for each other where the quorum is far away.
	maxUncommittedBytes = 8 << 20
	// maxShareCount bounds the messages in a share, as those whose entries have no bytes cost
	// memory, too.
	maxShareCount = 1024
)

// intake bounds the proposals of each peer that have arrived and that raft has not
// taken. Beyond its share a peer's stream is not read, so what it forwards waits at
// the peer, which parks it. The stream of a peer that comes to lead carries its
// entries, too: nothing is held by then, for a member that no longer leads drops what
// it holds (raftLoop.forget).
//
// The goroutines of the peers' streams enter, the loop leaves. Every message that has entered
// leaves once, whatever becomes of it: one that did not would take from its sender's share for
// as long as this process runs, and in the end nothing that the sender forwards would be read.
type intake struct {
	maxBytes int // immutable: of one share; maxUncommittedBytes, but in tests
	// mu is held for moments: the loop takes it for each message that it is done with.
	mu struct {
		sync.Mutex
		shares map[uint64]*share // by sender; an empty one is dropped, as peers may connect under any number of IDs
	}
}

// share is what one peer has in memory here. mu of intake guards it.
type share struct {
	count, bytes int
	freed        chan struct{} // closed when there is less; nil if nobody waits
}

// enter waits until there is room for m in its sender's share. It returns false if
// stopping is closed first. While it waits nothing else of that stream is read: the sender's
// queue fills, so Takes says no there, and its proposals are parked where their clients are.
func (in *intake) enter(m *raftpb.Message, stopping <-chan struct{}) bool {
	size := payload(m)
	for { // freed says that there is more room, not that it is enough
		freed := in.tryEnter(m.GetFrom(), size)
		if freed == nil {
			return true
		}
		select {
		case <-freed:
		case <-stopping:
			return false // it has not entered, so nobody may leave for it
		}
	}
}

// tryEnter counts a message if there is room, and returns nil, or else what to wait for. A share
// that is empty has room for anything: a message larger than maxBytes would wait for ever, and
// its whole stream behind it.
func (in *intake) tryEnter(from uint64, size int) <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.mu.shares[from]
	if s == nil {
		if in.mu.shares == nil {
			in.mu.shares = make(map[uint64]*share)
		}
		s = &share{}
		in.mu.shares[from] = s
	}
	if s.count == 0 || s.count < maxShareCount && s.bytes+size <= in.maxBytes {
		s.count++
		s.bytes += size
		return nil
	}
	// Made under the lock under which leave closes it: no room that is freed from now on is missed.
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// leave says that raft has taken a message of that payload, or that it was dropped.
func (in *intake) leave(from uint64, size int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.mu.shares[from] // enter has made it
	s.count--
	s.bytes -= size
	// A new one is made for whoever waits next: a channel closes once.
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
	if s.count == 0 {
		delete(in.mu.shares, from)
	}
}

// payload is what a message counts for in its share.
func payload(m *raftpb.Message) (bytes int) {
	for _, e := range m.GetEntries() {
		bytes += len(e.GetData())
	}
	return bytes
}
