package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// queueOutput is a destination that blocks until open is closed, and fails if err is set.
type queueOutput struct {
	open chan struct{}
	err  error
	mu   struct {
		sync.Mutex
		text strings.Builder
	}
}

func newQueueOutput(blocked bool) *queueOutput {
	o := &queueOutput{open: make(chan struct{})}
	if !blocked {
		close(o.open)
	}
	return o
}

// Write implements io.Writer.
func (o *queueOutput) Write(p []byte) (int, error) {
	<-o.open
	if o.err != nil {
		return 0, o.err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.text.Write(p)
}

func (o *queueOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.text.String()
}

func droppedLines(lines uint64) []byte { return fmt.Appendf(nil, "dropped %d\n", lines) }

// writeLines writes them as a handler of log/slog does, which uses its buffer again.
func writeLines(t *testing.T, w *logQueue, lines ...string) {
	t.Helper()
	var buffer []byte
	for _, line := range lines {
		buffer = append(buffer[:0], line...)
		if n, err := w.Write(buffer); n != len(line) || err != nil {
			t.Errorf("Write(%q) = %d, %v, want %d, nil", line, n, err, len(line))
		}
	}
}

// While the output is blocked, Write returns at once. The queue keeps the oldest lines, and the
// output later gets the number of dropped lines.
func TestABlockedOutputBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newQueueOutput(true)
		w := newLogQueue(o, 8, droppedLines)
		writeLines(t, w, "1\n")
		synctest.Wait() // the goroutine has taken it, and blocks
		writeLines(t, w, "2\n", "3\n", "4\n", "5\n", "6\n", "7\n")
		if got := w.Dropped(); got != 2 {
			t.Errorf("Dropped() = %d with a queue of 8 bytes that has got 12, want 2", got)
		}
		close(o.open)
		synctest.Wait()
		writeLines(t, w, "8\n")
		if !w.Close(time.Second) {
			t.Error("Close() = false for an output that takes all")
		}
		if got, want := o.String(), "1\n2\n3\n4\n5\ndropped 2\n8\n"; got != want {
			t.Errorf("the output has %q, want %q", got, want)
		}
	})
}

// An output that blocks for ever does not keep the process from ending.
func TestCloseOfABlockedOutputReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newQueueOutput(true)
		w := newLogQueue(o, 8, droppedLines)
		writeLines(t, w, "1\n")
		began := time.Now()
		if first, second := w.Close(time.Second), w.Close(time.Second); first || second {
			t.Error("Close() = true, though the output has taken nothing")
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("two calls of Close() took %v, want 2s", took)
		}
		writeLines(t, w, "2\n")
		if got := w.Dropped(); got != 1 {
			t.Errorf("Dropped() = %d after a line behind Close(), want 1", got)
		}
		close(o.open)
	})
}

func TestALineLongerThanTheQueue(t *testing.T) {
	o := newQueueOutput(false)
	w := newLogQueue(o, 8, droppedLines)
	long := strings.Repeat("x", 100) + "\n"
	writeLines(t, w, long)
	w.Close(time.Minute)
	if got := o.String(); got != long {
		t.Errorf("the output has %q, want the line", got)
	}
}

// Lines that the output refuses are counted as well.
func TestAFailedOutputIsCounted(t *testing.T) {
	o := newQueueOutput(false)
	o.err = errors.New("no space")
	w := newLogQueue(o, 1<<10, droppedLines)
	writeLines(t, w, "1\n", "2\n")
	w.Close(time.Minute)
	if got := w.Dropped(); got != 2 {
		t.Errorf("Dropped() = %d of 2 lines that the output refused, want 2", got)
	}
}
