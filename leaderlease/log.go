package leaderlease

import (
	"context"
	"log/slog"
	"runtime"
	"time"
)

// maxLogLines is how many log lines may wait for the handler of Config.Logger. Later lines are dropped and counted,
// so that a blocked handler uses no more memory.
const maxLogLines = 64

// closeLogWait is how long Close waits for the handler to write the last lines.
const closeLogWait = time.Second

// logQueue holds the log lines that wait for the handler of Config.Logger. A goroutine, which runs only while there
// are lines, passes them on in order and without the lock. So a blocked handler stops no method of the Lease.
type logQueue struct {
	lines   []slog.Record
	dropped int           // since the newest line that was added
	written chan struct{} // closed when the goroutine ends; nil while there is none
}

// logLocked adds a line. It never blocks.
func (l *Lease) logLocked(level slog.Level, msg string, args ...any) {
	if l.cfg.Logger.Handler() == slog.DiscardHandler {
		return
	}
	q := &l.mu.log
	if len(q.lines) == maxLogLines {
		q.dropped++
		return
	}
	var caller [1]uintptr
	runtime.Callers(2, caller[:])
	r := slog.NewRecord(time.Now(), level, msg, caller[0])
	r.Add(args...)
	if q.dropped > 0 {
		r.Add("dropped_lines", q.dropped)
		q.dropped = 0
	}
	q.lines = append(q.lines, r)
	if q.written == nil {
		q.written = make(chan struct{})
		go l.writeLog(q.written)
	}
}

// writeLog passes lines to the handler until none is left.
func (l *Lease) writeLog(written chan<- struct{}) {
	defer close(written)
	h := l.cfg.Logger.Handler()
	for {
		r, ok := l.nextLine()
		if !ok {
			return
		}
		if ctx := context.Background(); h.Enabled(ctx, r.Level) {
			_ = h.Handle(ctx, r) // package slog drops the error too
		}
	}
}

// nextLine takes the oldest line. Without one it records that the goroutine has ended.
func (l *Lease) nextLine() (r slog.Record, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.mu.log
	if len(q.lines) == 0 {
		q.lines, q.written = nil, nil
		return slog.Record{}, false
	}
	r, q.lines = q.lines[0], q.lines[1:]
	return r, true
}

// waitForLog waits until the lines are written, at most closeLogWait.
func (l *Lease) waitForLog() {
	l.mu.Lock()
	written := l.mu.log.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	t := time.NewTimer(closeLogWait)
	defer t.Stop()
	select {
	case <-written:
	case <-t.C:
	}
}
