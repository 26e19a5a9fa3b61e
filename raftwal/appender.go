package raftwal

import (
	"errors"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// Appender is the storage thread of raft's AsyncStorageWrites: it takes all
// updates that are waiting, makes them durable with one sync, and then says so.
type Appender struct {
	log      *Log             // immutable
	maxBytes int64            // immutable
	retry    func(error) bool // immutable

	done sync.WaitGroup
	wake *sync.Cond // on mu

	mu struct {
		sync.Mutex
		waiting []pending
		bytes   int64
		closed  bool
	}
}

// pending is an update and the function that is told when it is durable.
type pending struct {
	update Update
	done   func(error)
}

// maxWaiting bounds what Append takes in before it blocks, and what one sync
// covers.
const maxWaiting = 16 << 20

// NewAppender starts the thread. The caller closes it before the log. If the
// disk is full, the thread asks retry, which may wait, whether to try again; nil
// means no.
func NewAppender(l *Log, retry func(err error) bool) *Appender {
	a := &Appender{log: l, maxBytes: min(maxWaiting, l.cfg.MaxBatchBytes/2), retry: retry}
	a.wake = sync.NewCond(&a.mu.Mutex)
	a.done.Go(a.run)
	return a
}

// UpdateOf returns what a MsgStorageAppend wants to be durable.
func UpdateOf(m *raftpb.Message) Update {
	return Update{
		Entries:   m.GetEntries(),
		HardState: &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit},
		Snapshot:  m.GetSnapshot(),
	}
}

// Append hands u to the thread. When u is durable, or has failed, the thread
// calls done, in the order of Append; done must not block for long and not call
// Append. After one error every update fails with it: raft counts on the order.
// Append waits while very much is waiting, and returns ErrClosed
// after Close, without calling done.
func (a *Appender) Append(u Update, done func(error)) error {
	n := int64(len(u.Snapshot.GetData()))
	for _, e := range u.Entries {
		n += int64(recordSize(entryHeader + len(e.GetData())))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.mu.closed && a.mu.bytes > 0 && a.mu.bytes+n > a.maxBytes {
		a.wake.Wait()
	}
	if a.mu.closed {
		return ErrClosed
	}
	a.mu.waiting = append(a.mu.waiting, pending{u, done})
	a.mu.bytes += n
	a.wake.Broadcast()
	return nil
}

// Close finishes what is waiting and ends the thread.
func (a *Appender) Close() {
	a.mu.Lock()
	a.mu.closed = true
	a.wake.Broadcast()
	a.mu.Unlock()
	a.done.Wait()
}

// take waits for updates and returns all there are.
func (a *Appender) take(spare []pending) []pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.mu.waiting) == 0 {
		if a.mu.closed {
			return nil
		}
		a.wake.Wait()
	}
	a.mu.bytes = 0
	a.wake.Broadcast()
	clear(spare) // drops what its elements refer to
	taken := a.mu.waiting
	a.mu.waiting = spare[:0]
	return taken
}

func (a *Appender) run() {
	var group []pending
	var updates []Update
	var err error
	for {
		next := a.take(group)
		if next == nil {
			return
		}
		group, updates = next, updates[:0]
		for i := range group {
			updates = append(updates, group[i].update)
		}
		if err == nil {
			err = a.save(updates)
		}
		for i := range group {
			group[i].done(err)
		}
		clear(group)
		clear(updates)
	}
}

func (a *Appender) save(updates []Update) error {
	for {
		err := a.log.SaveAll(updates)
		if !errors.Is(err, ErrNoSpace) || a.retry == nil || !a.retry(err) {
			return err
		}
	}
}
