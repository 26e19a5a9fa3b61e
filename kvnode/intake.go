package kvnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// maxUncommittedBytes is what a leader has raft take that is not applied, and each
	// follower's share of what waits for that. One message is taken however large it is.
	maxUncommittedBytes = 8 << 20
	// maxShareCount bounds the messages in a share.
	maxShareCount = 1024
)

// intake bounds the proposals of each peer that have arrived and that raft has not
// taken. Beyond its share a peer's stream is not read, so what it forwards waits at
// the peer, which parks it. The stream of a peer that comes to lead carries its
// entries, too: nothing is held by then, for a member that no longer leads drops what
// it holds (Node.forget).
type intake struct {
	maxBytes int // immutable: of one share
	mu       struct {
		sync.Mutex
		shares map[uint64]*share
	}
}

type share struct {
	count, bytes int
	freed        chan struct{} // closed when there is less; nil if nobody waits
}

// enter waits until there is room for m in its sender's share. It returns false if
// stopping is closed first.
func (in *intake) enter(m *raftpb.Message, stopping <-chan struct{}) bool {
	size := payload(m)
	for {
		freed := in.tryEnter(m.GetFrom(), size)
		if freed == nil {
			return true
		}
		select {
		case <-freed:
		case <-stopping:
			return false
		}
	}
}

// tryEnter returns what to wait for, nil if there was room.
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
	if s.freed == nil {
		s.freed = make(chan struct{})
	}
	return s.freed
}

// leave says that raft has taken a message of that payload, or that it was dropped.
func (in *intake) leave(from uint64, size int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.mu.shares[from]
	s.count--
	s.bytes -= size
	if s.freed != nil {
		close(s.freed)
		s.freed = nil
	}
}

func payload(m *raftpb.Message) (bytes int) {
	for _, e := range m.GetEntries() {
		bytes += len(e.GetData())
	}
	return bytes
}
