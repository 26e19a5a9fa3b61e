// Package logqueue writes log lines without making their callers wait for the output.
//
// A write to a pipe or a file blocks while its reader or its disk is stalled. The raft loop and
// the lease log while other goroutines wait for them, so a blocked write would stop the member.
// Write therefore queues the line, and one goroutine writes the queue to the output. When the
// queue is full, Write drops the line and counts it.
package logqueue

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Writer is an io.Writer that never blocks on its output. Each call of Write is one line, and
// the output gets each line in one call of its own Write.
type Writer struct {
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

// New returns a Writer to output that queues up to maxBytes. notice makes the line that tells
// readers of the output how many lines are missing before it; an empty one is not written.
// Close ends the Writer's goroutine.
func New(output io.Writer, maxBytes int, notice func(lines uint64) []byte) *Writer {
	w := &Writer{output: output, maxBytes: maxBytes, notice: notice, done: make(chan struct{})}
	w.changed = sync.NewCond(&w.mu.Mutex)
	go w.run()
	return w
}

// Write queues a copy of line, or drops it. It reports success in both cases, since the
// caller could do nothing about a dropped log line.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// An empty queue takes a line of any length, so that no line is too long for maxBytes.
	if w.mu.closed || len(w.mu.lines) > 0 && w.mu.bytes+len(line) > w.maxBytes {
		w.mu.unreported++
		w.dropped.Add(1)
		return len(line), nil
	}
	w.mu.lines = append(w.mu.lines, append([]byte(nil), line...))
	w.mu.bytes += len(line)
	w.changed.Signal()
	return len(line), nil
}

// Dropped returns the number of lines that the output did not get: the queue was full, the
// Writer was closed, or the output failed.
func (w *Writer) Dropped() uint64 { return w.dropped.Load() }

// Close waits until the output has all queued lines, for at most wait, and reports whether it
// has them. Lines that are written later are dropped. A second call waits again.
func (w *Writer) Close(wait time.Duration) bool {
	w.mu.Lock()
	w.mu.closed = true
	w.mu.Unlock()
	w.changed.Signal()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.done:
		return true
	case <-timer.C:
		return false
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for {
		lines, dropped, closed := w.take()
		for _, line := range lines {
			if _, err := w.output.Write(line); err != nil {
				dropped++
				w.dropped.Add(1)
			}
		}
		// All lines in dropped were refused while lines filled the queue, so the notice belongs here.
		if dropped > 0 && !w.report(dropped) {
			w.mu.Lock()
			w.mu.unreported += dropped
			w.mu.Unlock()
		}
		if closed {
			return
		}
	}
}

// take waits for lines, and empties the queue. closed means that no further lines will come.
func (w *Writer) take() (lines [][]byte, dropped uint64, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.mu.lines) == 0 && !w.mu.closed {
		w.changed.Wait()
	}
	lines, dropped = w.mu.lines, w.mu.unreported
	w.mu.lines, w.mu.bytes, w.mu.unreported = nil, 0, 0
	return lines, dropped, w.mu.closed
}

// report writes the notice and reports whether the output has taken it.
func (w *Writer) report(dropped uint64) bool {
	line := w.notice(dropped)
	if len(line) == 0 {
		return true
	}
	_, err := w.output.Write(line)
	return err == nil
}
