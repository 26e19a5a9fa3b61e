package main

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// logQueue is an io.Writer that never blocks on its output. Each call of Write is one line, and
// the output gets each line in one call of its own Write.
//
// A write to a pipe or a file blocks while its reader or its disk is stalled. The raft loop and
// the lease log while other goroutines wait for them, so a blocked write would stop the member.
// Write therefore queues the line, and one goroutine writes the queue to the output. When the
// queue is full, Write drops the line and counts it.
type logQueue struct {
	output   io.Writer                 // immutable
	maxBytes int                       // immutable
	notice   func(lines uint64) []byte // immutable
	done     chan struct{}             // closed when the goroutine has ended
	dropped  atomic.Uint64

	changed *sync.Cond // of mu; signals lines and closed
	mu      struct {
		sync.Mutex
		lines      [][]byte
		bytes      int    // of lines
		unreported uint64 // lines dropped since the last notice
		closed     bool
	}
}

// newLogQueue returns a logQueue for output that holds up to maxBytes. notice makes the line that tells
// readers of the output how many lines are missing before it; an empty one is not written.
// Close ends the queue's goroutine.
func newLogQueue(output io.Writer, maxBytes int, notice func(lines uint64) []byte) *logQueue {
	q := &logQueue{output: output, maxBytes: maxBytes, notice: notice, done: make(chan struct{})}
	q.changed = sync.NewCond(&q.mu.Mutex)
	go q.run()
	return q
}

// Write queues a copy of line, or drops it. It reports success in both cases, since the
// caller could do nothing about a dropped log line.
func (q *logQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// An empty queue takes a line of any length, so that no line is too long for maxBytes.
	if q.mu.closed || len(q.mu.lines) > 0 && q.mu.bytes+len(line) > q.maxBytes {
		q.mu.unreported++
		q.dropped.Add(1)
		return len(line), nil
	}
	q.mu.lines = append(q.mu.lines, append([]byte(nil), line...))
	q.mu.bytes += len(line)
	q.changed.Signal()
	return len(line), nil
}

// Dropped returns the number of lines that the output did not get: the queue was full, the
// queue was closed, or the output failed.
func (q *logQueue) Dropped() uint64 { return q.dropped.Load() }

// Close waits until the output has all queued lines, for at most wait, and reports whether it
// has them. Lines that are written later are dropped. A second call waits again.
func (q *logQueue) Close(wait time.Duration) bool {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.changed.Signal()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-q.done:
		return true
	case <-timer.C:
		return false
	}
}

func (q *logQueue) run() {
	defer close(q.done)
	for {
		lines, dropped, closed := q.take()
		for _, line := range lines {
			if _, err := q.output.Write(line); err != nil {
				dropped++
				q.dropped.Add(1)
			}
		}
		// All lines in dropped were refused while lines filled the queue, so the notice belongs here.
		if dropped > 0 && !q.report(dropped) {
			q.mu.Lock()
			q.mu.unreported += dropped
			q.mu.Unlock()
		}
		if closed {
			return
		}
	}
}

// take waits for lines, and empties the queue. closed means that no further lines will come.
func (q *logQueue) take() (lines [][]byte, dropped uint64, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.lines) == 0 && !q.mu.closed {
		q.changed.Wait()
	}
	lines, dropped = q.mu.lines, q.mu.unreported
	q.mu.lines, q.mu.bytes, q.mu.unreported = nil, 0, 0
	return lines, dropped, q.mu.closed
}

// report writes the notice and reports whether the output has taken it.
func (q *logQueue) report(dropped uint64) bool {
	line := q.notice(dropped)
	if len(line) == 0 {
		return true
	}
	_, err := q.output.Write(line)
	return err == nil
}
