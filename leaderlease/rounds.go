package leaderlease

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// pendingReads are the waiting reads, and the quorum round that they share. At most one round is under way, so a
// thousand reads cost as much as one.
type pendingReads struct {
	// seq is the number of the newest round. asked is set while it is under way, age counts its ticks.
	seq   uint64
	asked bool
	age   int
	// waiting holds the reads without an index. awaitingApplied holds the reads that wait until their index is
	// applied, sorted by index.
	waiting         waitlist
	awaitingApplied waitlist
	// stuck counts the ticks in which reads waited in awaitingApplied and the applied index stayed at seen.
	seen  uint64
	stuck int
}

func (r *pendingReads) add(w *waiter) {
	w.round = r.seq + 1
	r.waiting.push(w)
}

// rebase sets at and commitAt of the waiting reads at the first commit of the term. Any moment
// between the call and the return of a read is right.
func (r *pendingReads) rebase(now core.Instant, commit uint64) {
	for _, w := range r.waiting.all {
		if !w.needsRound {
			w.at, w.commitAt = now, commit
		}
	}
}

// askLocked starts a round for all waiting reads. Raft may lose a request without an error, so each try has its
// own ID.
func (l *Lease) askLocked() {
	r := &l.mu.reads
	r.seq++
	r.asked, r.age = true, 0
	quorum := slices.ContainsFunc(r.waiting.all, func(w *waiter) bool { return w.needsRound && !w.gone })
	rctx := l.nonce.id(r.seq, quorum)
	// The newest request serves all waiting reads, so it replaces an older one in the channel.
	select {
	case <-l.requests:
	default:
	}
	l.requests <- rctx
	l.stats.rounds.Add(1)
	if l.cfg.NotifyRead != nil {
		l.cfg.NotifyRead()
	}
}

// ReadRequests delivers the requests of waiting reads. For each value, call ReadIndex of the group's RawNode or
// Node with it, in the goroutine that owns the node. The channel never closes, and holds at most one request. A
// Node that Wrap, StartNode or RestartNode has returned receives from it by itself.
//
// A follower may instead send the MsgReadIndex that raft would send, with the value as the data of its only
// entry, to its leader. That saves a turn of the loop.
func (l *Lease) ReadRequests() <-chan []byte {
	if l == nil {
		return nil
	}
	return l.requests
}

// readStatesLocked takes the answers to rounds.
func (l *Lease) readStatesLocked(states []raft.ReadState) (done finished) {
	r := &l.mu.reads
	leads := l.mu.role == raft.StateLeader
	for _, s := range states {
		seq, quorum, ours := l.nonce.seq(s.RequestCtx)
		if !ours {
			continue
		}
		if seq == r.seq {
			r.asked = false
		}
		// Raft's own answer may be stale: see mayAnswerLocked. The reads wait for a renewal or the next try.
		if leads && !l.mayAnswerLocked(s.Index) {
			continue
		}
		path := PathForwarded
		if leads {
			path = PathReadIndex
		}
		// On a leader every answer comes from a round. On a follower only the answer to a marked request surely does.
		serves := func(w *waiter) bool { return w.round <= seq && (leads || quorum || !w.needsRound) }
		for _, w := range r.waiting.take(serves) {
			w.read = ReadResult{Term: l.mu.term, Path: path}
			done = append(done, l.whenAppliedLocked(w, s.Index)...)
		}
	}
	if !r.asked && r.waiting.len() > 0 && (!leads || l.mayAskLocked()) {
		l.askLocked()
	}
	return done
}

// joinedLocked answers the reads that arrived at a moment that the lease in v covers (docs/design.md, Joined reads).
func (l *Lease) joinedLocked(v *view) (done finished) {
	r := &l.mu.reads
	if v.Status != core.Valid || r.waiting.len() == 0 {
		return nil
	}
	for _, w := range r.waiting.take(func(w *waiter) bool { return w.at > 0 && w.at < v.Usable }) {
		w.read = ReadResult{Term: v.Term, Path: PathJoined}
		done = append(done, l.whenAppliedLocked(w, w.commitAt)...)
	}
	return done
}

// failReadsLocked fails the reads that wait for an index, and if all is set, those that wait for the state machine.
func (l *Lease) failReadsLocked(err error, all bool) (done finished) {
	r := &l.mu.reads
	r.asked = false
	done = l.failWaitingLocked(err, everyone)
	if all {
		for _, w := range r.awaitingApplied.take(everyone) {
			done = append(done, result{w: w, err: err})
		}
	}
	return done
}

// failWaitingLocked fails the reads that wait for an index and match.
func (l *Lease) failWaitingLocked(err error, match func(*waiter) bool) (done finished) {
	for _, w := range l.mu.reads.waiting.take(match) {
		done = append(done, result{w: w, err: err})
	}
	return done
}

// nonce identifies one start of one node. An answer to an earlier process must not confirm a read of this one, and
// clock readings of an earlier process must not be compared with those of this one.
type nonce [8]byte

// roundMark in the number of a request asks the leader to make a quorum round and not to answer from its lease. An
// older leader ignores the mark, so the answer must confirm the round.
const roundMark = 1 << 63

func (n nonce) id(seq uint64, quorum bool) []byte {
	if quorum {
		seq |= roundMark
	}
	return binary.BigEndian.AppendUint64(n[:len(n):len(n)], seq)
}

// incarnation takes 42 bits of n, which are 6 bytes on the wire. A process has its predecessor's incarnation once in
// 4 * 10^12 restarts.
func (n nonce) incarnation() core.Incarnation {
	return core.Incarnation(binary.BigEndian.Uint64(n[:]) >> 22).Next()
}

func (n nonce) seq(id []byte) (seq uint64, quorum, ours bool) {
	if len(id) != 2*len(n) || nonce(id[:len(n)]) != n {
		return 0, false, false
	}
	seq = binary.BigEndian.Uint64(id[len(n):])
	return seq &^ roundMark, seq&roundMark != 0, true
}

// others drops the answers to the lease's own requests, which the embedder must not see.
func (n nonce) others(states []raft.ReadState) (kept []raft.ReadState) {
	for _, s := range states {
		if _, _, ours := n.seq(s.RequestCtx); !ours {
			kept = append(kept, s)
		}
	}
	return kept
}

// wantsRound reports whether m, a request or its answer, carries the mark. An embedder's own request that looks
// marked costs only a round.
func wantsRound(m *raftpb.Message) bool {
	return slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool {
		id := e.GetData()
		return len(id) == 2*len(nonce{}) && binary.BigEndian.Uint64(id[len(nonce{}):])&roundMark != 0
	})
}
