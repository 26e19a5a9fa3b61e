package leaderlease

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// rounds are the reads that wait, and the quorum round they share. At most one
// round is under way, so a thousand reads cost what one does.
type rounds struct {
	// seq is the newest round asked for; asked is whether it is under way, for
	// age ticks.
	seq   uint64
	asked bool
	age   int
	// waiting have no index yet; barriers wait for theirs to be applied, sorted
	// by index.
	waiting  waitlist
	barriers waitlist
	// still is for how many ticks barriers have waited with Applied at seen.
	seen  uint64
	still int
}

func (r *rounds) add(w *waiter) {
	w.round = r.seq + 1
	r.waiting.push(w)
}

// rebase gives the reads that arrived before the reign's first commit the
// moment of that commit: any moment between call and return will do.
func (r *rounds) rebase(now core.Instant, commit uint64) {
	for _, w := range r.waiting.all {
		if !w.quorum {
			w.at, w.index = now, commit
		}
	}
}

// askLocked starts a round for every read that waits. Raft loses requests
// without notice, so each try has an id of its own.
func (l *Lease) askLocked() {
	r := &l.mu.reads
	r.seq++
	r.asked, r.age = true, 0
	quorum := slices.ContainsFunc(r.waiting.all, func(w *waiter) bool { return w.quorum && !w.gone })
	rctx := l.nonce.id(r.seq, quorum)
	// The newest request serves every read that waits, so one that nobody has
	// taken yet is replaced.
	select {
	case <-l.requests:
	default:
	}
	l.requests <- rctx
	l.stats.rounds.Add(1)
	if l.cfg.Notify != nil {
		l.cfg.Notify()
	}
}

// ReadRequests delivers the requests that Read needs handed to raft: for each
// value, call ReadIndex of the group's RawNode or Node with it, from the loop
// that owns it. The channel never closes; at most one request is in it. Wrap
// receives from it, so its users must not.
//
// A follower may instead send its leader what raft would, a MsgReadIndex from this node
// with the value as the data of its only entry: that saves a turn of the loop.
func (l *Lease) ReadRequests() <-chan []byte {
	if l == nil {
		return nil
	}
	return l.requests
}

// readStatesLocked takes the answers of rounds.
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
		// See mayAnswerLocked: raft's own answer may be stale. The reads go on
		// waiting for a renewal or for the next try.
		if leads && !l.mayAnswerLocked(s.Index) {
			continue
		}
		path := PathForwarded
		if leads {
			path = PathReadIndex
		}
		// A leader makes a round for each of its own requests, for a follower's
		// only if they say so.
		serves := func(w *waiter) bool { return w.round <= seq && (leads || quorum || !w.quorum) }
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

// joinedLocked answers the reads that the lease in v turns out to have covered
// at the moment they arrived (L2; docs/design.md, A read).
func (l *Lease) joinedLocked(v *view) (done finished) {
	r := &l.mu.reads
	if v.Status != core.Valid || r.waiting.len() == 0 {
		return nil
	}
	for _, w := range r.waiting.take(func(w *waiter) bool { return w.at > 0 && w.at < v.Usable }) {
		w.read = ReadResult{Term: v.Term, Path: PathJoined}
		done = append(done, l.whenAppliedLocked(w, w.index)...)
	}
	return done
}

// failReadsLocked fails the reads that wait for an index, and with all also
// those that only wait for the state machine.
func (l *Lease) failReadsLocked(err error, all bool) (done finished) {
	r := &l.mu.reads
	r.asked = false
	done = l.failWaitingLocked(err, everyone)
	if all {
		for _, w := range r.barriers.take(everyone) {
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

// nonce sets one start of one node apart from all others: an answer that was
// meant for an earlier start must not confirm a read of this one, and readings of
// an earlier process must not be compared with those of this one.
type nonce [8]byte

// roundMark in the number of a request says that its leader must make a quorum
// round for it, and not answer from its lease. A leader that does not know the
// mark ignores it, so what counts is what attests the answer.
const roundMark = 1 << 63

func (n nonce) id(seq uint64, quorum bool) []byte {
	if quorum {
		seq |= roundMark
	}
	return binary.BigEndian.AppendUint64(n[:len(n):len(n)], seq)
}

// incarnation takes 42 bits of it, which are 6 bytes on the wire: a process has
// its predecessor's once in 4 * 10^12 restarts.
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

// others returns the answers that are not to requests of the lease. An embedder
// that hands every ReadState to a reader of its own would wait for one that there
// is not.
func (n nonce) others(states []raft.ReadState) (kept []raft.ReadState) {
	for _, s := range states {
		if _, _, ours := n.seq(s.RequestCtx); !ours {
			kept = append(kept, s)
		}
	}
	return kept
}

// wantsRound reports whether m, a request or its answer, carries the mark. An
// embedder's own request that looks like one costs a round, no more.
func wantsRound(m *raftpb.Message) bool {
	return slices.ContainsFunc(m.GetEntries(), func(e *raftpb.Entry) bool {
		id := e.GetData()
		return len(id) == 2*len(nonce{}) && binary.BigEndian.Uint64(id[len(nonce{}):])&roundMark != 0
	})
}
