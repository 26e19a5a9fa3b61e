package raftwal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// model is what a log should hold.
type model struct {
	hard    hardState
	durable hardState // hard, less a commit index that was put off
	snap    *raftpb.Snapshot
	base    entryID
	entries []*raftpb.Entry
	promise time.Duration
}

func newModel() *model { return &model{snap: raftpb.EnsureSnapshot(nil)} }

func (m *model) clone() *model {
	c := *m
	c.entries = slices.Clone(m.entries)
	return &c
}

func (m *model) last() uint64 { return m.base.index + uint64(len(m.entries)) }

func (m *model) term(i uint64) uint64 {
	if i == m.base.index {
		return m.base.term
	}
	return m.entries[i-m.base.index-1].GetTerm()
}

func (m *model) save(u Update) {
	if i := u.Snapshot.GetMetadata().GetIndex(); i > m.snap.GetMetadata().GetIndex() {
		m.snap = u.Snapshot
		m.base = entryID{term: u.Snapshot.GetMetadata().GetTerm(), index: i}
		m.entries = nil
		m.durable = m.hard
		m.hard.cover(i)
	}
	for _, e := range u.Entries {
		if e.GetIndex() > m.base.index {
			m.entries = append(slices.Clip(m.entries[:e.GetIndex()-m.base.index-1]), e)
			m.durable = m.hard
		}
	}
	if u.HardState != nil {
		wrote := m.durable == m.hard && (u.Snapshot != nil || len(u.Entries) > 0)
		commit := m.hard.commit
		m.hard = hardOf(u.HardState)
		m.hard.commit = max(m.hard.commit, commit)
		m.hard.cover(m.snap.GetMetadata().GetIndex())
		if wrote || m.hard.term != m.durable.term || m.hard.vote != m.durable.vote {
			m.durable = m.hard
		}
	}
}

// step is one call on a log.
type step struct {
	name    string
	update  Update           // Save, or
	snap    *raftpb.Snapshot // SaveSnapshot, or
	compact uint64           // Compact, or
	promise time.Duration    // SaveLongestPromise, or
	flush   bool             // Flush, or
	commit  uint64           // SaveCommit, or
	reopen  bool             // Close and Open
}

func (s *step) apply(m *model) {
	switch {
	case s.snap != nil:
		m.snap = s.snap
		m.hard.commit = max(m.hard.commit, s.snap.GetMetadata().GetIndex())
		m.durable = m.hard
	case s.compact != 0:
		n := s.compact - m.base.index
		m.base = entryID{term: m.term(s.compact), index: s.compact}
		m.entries = slices.Clone(m.entries[n:])
	case s.promise != 0:
		m.promise = s.promise
	case s.flush, s.reopen:
		m.durable = m.hard
	case s.commit != 0:
		m.hard.commit = max(m.hard.commit, s.commit)
		m.durable.commit = max(m.durable.commit, s.commit)
	default:
		m.save(s.update)
	}
}

func (s *step) run(l *Log, reopen func() (*Log, error)) (*Log, error) {
	if !s.reopen {
		err := s.write(l)
		return l, err
	}
	if err := l.Close(); err != nil {
		return l, err
	}
	return reopen()
}

func (s *step) write(l *Log) error {
	switch {
	case s.snap != nil:
		return l.SaveSnapshot(s.snap)
	case s.compact != 0:
		return l.Compact(s.compact)
	case s.promise != 0:
		return l.SaveLongestPromise(s.promise)
	case s.flush:
		return l.Flush()
	case s.commit != 0:
		return l.SaveCommit(s.commit)
	default:
		return l.Save(s.update.Entries, s.update.HardState, s.update.Snapshot)
	}
}

// draw returns a step that raft could take in m's state.
func draw(m *model, r *rand.Rand) step {
	term := max(m.hard.term, 1)
	what := r.IntN(20)
	if st, ok := drawBesides(what, m, r); ok {
		return st
	}
	next := func(from, n uint64) (out []*raftpb.Entry) {
		for i := range n {
			out = append(out, entry(term, from+i, []int{0, 10, 100, 300, 900}[r.IntN(5)]))
		}
		return out
	}
	switch what {
	case 0: // a new term, and an entry in it
		return step{name: "vote", update: Update{HardState: hard(term+1, 1+r.Uint64N(3), m.hard.commit)}}
	case 1: // a new leader replaces the uncommitted end
		from := max(m.hard.commit, m.base.index) + 1
		from += r.Uint64N(m.last() + 2 - min(from, m.last()+1))
		term++
		e := next(min(from, m.last()+1), 1+r.Uint64N(3))
		return step{name: "conflict", update: Update{Entries: e, HardState: hard(term, 0, m.hard.commit)}}
	case 2:
		return step{name: "commit", update: Update{HardState: hard(term, m.hard.vote, m.drawCommit(r))}}
	case 3:
		if r.IntN(4) > 0 {
			break
		}
		at := max(m.last(), m.snap.GetMetadata().GetIndex()) + 1 + r.Uint64N(20)
		u := Update{Snapshot: snapshot(term, at), HardState: hard(term, m.hard.vote, at)}
		if r.IntN(2) == 0 {
			u.Entries = next(at+1, 2)
		}
		return step{name: "install", update: u}
	}
	e := next(m.last()+1, 1+r.Uint64N(4))
	return step{name: "append", update: Update{Entries: e, HardState: hard(term, m.hard.vote, m.drawCommit(r))}}
}

// drawCommit draws a commit index that does not go back.
func (m *model) drawCommit(r *rand.Rand) uint64 {
	return m.hard.commit + r.Uint64N(max(m.last(), m.hard.commit)-m.hard.commit+1)
}

// drawBesides draws a step that appends nothing: what is kept beside the entries.
func drawBesides(what int, m *model, r *rand.Rand) (st step, ok bool) {
	switch what {
	case 4, 5:
		low := max(m.base.index, m.snap.GetMetadata().GetIndex())
		if high := min(m.hard.commit, m.last()); high > low {
			return step{name: "checkpoint", snap: snapshotOf(m, low+1+r.Uint64N(high-low))}, true
		}
	case 6, 7:
		if high := m.snap.GetMetadata().GetIndex(); high > m.base.index {
			return step{name: "compact", compact: m.base.index + 1 + r.Uint64N(high-m.base.index)}, true
		}
	case 8:
		return step{name: "promise", promise: time.Duration(1 + r.IntN(1e9))}, true
	case 9:
		return step{name: "flush", flush: true}, true
	case 10:
		return step{name: "reopen", reopen: true}, true
	case 11:
		if index := m.drawCommit(r); index > 0 {
			return step{name: "save commit", commit: index}, true
		}
	}
	return step{}, false
}

func snapshotOf(m *model, index uint64) *raftpb.Snapshot { return snapshot(m.term(index), index) }

// check compares a log with the model. After a crash the commit index may be
// any between the durable one and the newest.
func (m *model) check(l *Log, crashed bool) error {
	got := l.mu.view.hard
	if crashed && got.commit >= m.durable.commit && got.commit <= m.hard.commit {
		got.commit = m.hard.commit
	}
	if got != m.hard {
		return fmt.Errorf("hard state %+v, want %+v (durable: %+v)", got, m.hard, m.durable)
	}
	promise, err1 := l.LoadLongestPromise()
	snap, err2 := l.Snapshot()
	first, err3 := l.FirstIndex()
	last, err4 := l.LastIndex()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if promise != m.promise {
		return fmt.Errorf("LoadLongestPromise() = %v, want %v", promise, m.promise)
	}
	if !proto.Equal(snap, m.snap) {
		return fmt.Errorf("Snapshot() = %v, want %v", snap, m.snap)
	}
	if first != m.base.index+1 || last != m.last() {
		return fmt.Errorf("entries %d to %d, want %d to %d", first, last, m.base.index+1, m.last())
	}
	for i := m.base.index; i <= last; i++ {
		term, err := l.Term(i)
		if err != nil {
			return fmt.Errorf("Term(%d): %w", i, err)
		}
		if term != m.term(i) {
			return fmt.Errorf("Term(%d) = %d, want %d", i, term, m.term(i))
		}
	}
	if first > last {
		return nil
	}
	e, err := l.Entries(first, last+1, noLimit)
	return errors.Join(err, sameEntries(e, m.entries))
}
