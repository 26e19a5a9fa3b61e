package raftwal

import (
	"errors"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// Appender is the storage thread of raft's AsyncStorageWrites. It makes all waiting
// updates durable with one sync, then calls their functions.
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

// pending is an update and the function to call when it is durable.
type pending struct {
	update Update
	done   func(error)
}

// maxWaiting limits the bytes of waiting updates, and so of one sync.
const maxWaiting = 16 << 20

// NewAppender starts the thread. Close the Appender before the log. On a full disk the
// thread calls retry, which may block, and tries again if retry returns true. If retry is
// nil, the thread does not try again.
func NewAppender(l *Log, retry func(err error) bool) *Appender {
	a := &Appender{log: l, maxBytes: min(maxWaiting, l.cfg.MaxBatchBytes/2), retry: retry}
	a.wake = sync.NewCond(&a.mu.Mutex)
	a.done.Go(a.run)
	return a
}

// UpdateOf returns the update in a MsgStorageAppend.
func UpdateOf(m *raftpb.Message) Update {
	return Update{
		Entries:   m.GetEntries(),
		HardState: &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit},
		Snapshot:  m.GetSnapshot(),
	}
}

// Append passes u to the thread. When u is durable, or has failed, the thread calls
// done, in the order of Append. done must not block for long and must not call Append.
// After an error every later update fails with it, because raft relies on the order.
// Append blocks while other updates wait and all of them with u exceed 16 MiB, or half of
// Config.MaxBatchBytes if that is less. After Close it returns ErrClosed and does not call
// done.
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

// Close saves all waiting updates and ends the thread.
func (a *Appender) Close() {
	a.mu.Lock()
	a.mu.closed = true
	a.wake.Broadcast()
	a.mu.Unlock()
	a.done.Wait()
}

// take waits for updates and returns all of them. reuse is cleared, and holds the next ones.
func (a *Appender) take(reuse []pending) []pending {
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
	taken := a.mu.waiting
	a.mu.waiting = reuse[:0]
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
