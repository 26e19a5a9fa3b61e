package leaderlease

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// waiter is one read that could not be served at once.
type waiter struct {
	done  func(Read, error)
	stats *counters
	read  Read

	// at and index are a moment after the read arrived at which this node led,
	// and its commit index then or later. A lease that turns out to have covered
	// at covers the read (section 6.2). at is 0 on followers, and as long as no
	// own-term entry is committed.
	at    core.Instant
	index uint64
	// round is the first round asked for after the read arrived.
	round uint64
}

func (w *waiter) finish(err error) {
	if err != nil {
		w.done(Read{}, err)
		return
	}
	w.stats.paths.add(w.read.Path)
	w.done(w.read, nil)
}

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
	waiting  []*waiter
	barriers []*waiter
}

func (r *rounds) add(w *waiter) {
	w.round = r.seq + 1
	r.waiting = append(r.waiting, w)
}

func (r *rounds) remove(w *waiter) {
	is := func(o *waiter) bool { return o == w }
	r.waiting = slices.DeleteFunc(r.waiting, is)
	r.barriers = slices.DeleteFunc(r.barriers, is)
}

// take removes and returns the waiting reads that match.
func (r *rounds) take(match func(*waiter) bool) (taken []*waiter) {
	kept := r.waiting[:0]
	for _, w := range r.waiting {
		if match(w) {
			taken = append(taken, w)
			continue
		}
		kept = append(kept, w)
	}
	clear(r.waiting[len(kept):])
	r.waiting = kept
	return taken
}

// barrier files w by its index. Indexes mostly arrive in order.
func (r *rounds) barrier(w *waiter) {
	at, _ := slices.BinarySearchFunc(r.barriers, w, func(a, b *waiter) int {
		if a.read.Index <= b.read.Index {
			return -1
		}
		return 1
	})
	r.barriers = slices.Insert(r.barriers, at, w)
}

// reached removes and returns the reads whose index is applied.
func (r *rounds) reached(applied uint64) []*waiter {
	n := 0
	for n < len(r.barriers) && r.barriers[n].read.Index <= applied {
		n++
	}
	if n == 0 {
		return nil
	}
	taken := slices.Clone(r.barriers[:n])
	r.barriers = slices.Delete(r.barriers, 0, n)
	return taken
}

// rebase gives the reads that arrived before the reign's first commit the
// moment of that commit: any moment between call and return will do.
func (r *rounds) rebase(now core.Instant, commit uint64) {
	for _, w := range r.waiting {
		w.at, w.index = now, commit
	}
}

// askLocked starts a round for every read that waits. Raft loses requests
// without notice, so each try has an id of its own.
func (l *Lease) askLocked() {
	r := &l.mu.reads
	r.seq++
	r.asked, r.age = true, 0
	rctx := l.nonce.id(r.seq)
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
// that owns it. The channel never closes; at most one request is in it.
func (l *Lease) ReadRequests() <-chan []byte { return l.requests }

// readStatesLocked takes the answers of rounds.
func (l *Lease) readStatesLocked(states []raft.ReadState) (done finished) {
	r := &l.mu.reads
	leads := l.mu.role == raft.StateLeader
	for _, s := range states {
		seq, ours := l.nonce.seq(s.RequestCtx)
		if !ours {
			continue
		}
		if seq == r.seq {
			r.asked = false
		}
		// See mayAnswerLocked: raft's own answer may be stale. The reads go on
		// waiting for a renewal or for the next try.
		if leads && !l.mayAnswerLocked() {
			continue
		}
		path := PathForwarded
		if leads {
			path = PathReadIndex
		}
		for _, w := range r.take(func(w *waiter) bool { return w.round <= seq }) {
			w.read = Read{Term: l.mu.term, Path: path}
			done = append(done, l.awaitLocked(w, s.Index)...)
		}
	}
	if !r.asked && len(r.waiting) > 0 && (!leads || l.mayAnswerLocked()) {
		l.askLocked()
	}
	return done
}

// joinedLocked answers the reads that the lease in v turns out to have covered
// at the moment they arrived (L2, section 6.2).
func (l *Lease) joinedLocked(v *view) (done finished) {
	r := &l.mu.reads
	if v.Status != core.Valid || len(r.waiting) == 0 {
		return nil
	}
	for _, w := range r.take(func(w *waiter) bool { return w.at > 0 && w.at < v.Usable }) {
		w.read = Read{Term: v.Term, Path: PathJoined}
		done = append(done, l.awaitLocked(w, w.index)...)
	}
	return done
}

// failReadsLocked fails the reads that wait for an index, and with all also
// those that only wait for the state machine.
func (l *Lease) failReadsLocked(err error, all bool) (done finished) {
	r := &l.mu.reads
	r.asked = false
	for _, w := range r.waiting {
		done = append(done, result{w: w, err: err})
	}
	r.waiting = nil
	if all {
		for _, w := range r.barriers {
			done = append(done, result{w: w, err: err})
		}
		r.barriers = nil
	}
	return done
}

// nonce sets the rounds of one start of one node apart from all others: an
// answer that was meant for an earlier start must not confirm a read of this
// one.
type nonce [8]byte

func (n nonce) id(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(n[:len(n):len(n)], seq)
}

func (n nonce) seq(id []byte) (uint64, bool) {
	if len(id) != 2*len(n) || nonce(id[:len(n)]) != n {
		return 0, false
	}
	return binary.BigEndian.Uint64(id[len(n):]), true
}
