package kvnode

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/double"
)

// applyJob is a MsgStorageApply, or a snapshot to restore.
type applyJob struct {
	entries   []*raftpb.Entry
	responses []*raftpb.Message // to raft, once the entries are applied

	restore *raftpb.Snapshot
	done    chan<- struct{} // closed when restore is done
}

// applyQueue is the way from the loop, and for snapshots from the appender, to the
// applier. It keeps the order in which raft has handed jobs out, which is that of the log.
// It has no bound of its own: raft hands out no more than MaxCommittedSizePerReady that it
// has not heard of again. So the loop never waits for the applier, which may wait for it
// (applyConf).
type applyQueue struct {
	ready *sync.Cond // with mu: a job is there, or the queue is closed

	mu struct {
		sync.Mutex
		jobs   []applyJob
		closed bool
	}
}

func (q *applyQueue) init() { q.ready = sync.NewCond(&q.mu.Mutex) }

func (q *applyQueue) put(j applyJob) {
	q.mu.Lock()
	q.mu.jobs = append(q.mu.jobs, j)
	q.mu.Unlock()
	q.ready.Signal()
}

// take waits for jobs, and keeps spare for what comes. It returns nil once the
// queue is closed.
func (q *applyQueue) take(spare []applyJob) []applyJob {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.jobs) == 0 && !q.mu.closed {
		q.ready.Wait()
	}
	if q.mu.closed {
		return nil
	}
	return double.Take(&q.mu.jobs, spare)
}

func (q *applyQueue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.ready.Broadcast()
}
