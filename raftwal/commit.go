package raftwal

import "fmt"

// SaveCommit makes durable that the entries up to index are committed, which the
// caller knows from raft, and writes nothing if the log on disk says so already.
// The commit index never falls by it. The caller that applies a change of the configuration
// calls it before that counts (see Configuration changes in the package's comment).
//
// Flush is not enough for that: the update with the commit index may still wait for
// an Appender. SaveCommit waits for a write under way and for no update, so what an
// Appender calls may wait for whoever is in SaveCommit.
//
// It refuses an index beyond the last entry. On a full disk it finds room where a
// Compact up to that index would free a segment.
func (l *Log) SaveCommit(index uint64) error {
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	if index <= l.w.hard.commit {
		return nil
	}
	v := &l.mu.view // only writers change it
	if last := v.last(); index > last {
		return fmt.Errorf("%w: commit index %d, last entry %d", ErrCommitBeyondLog, index, last)
	}
	hard := v.hard
	hard.commit = max(hard.commit, index)
	if err := l.writeHard(l.useFor(useFlush, index), hard); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	v.hard = hard
	return nil
}
