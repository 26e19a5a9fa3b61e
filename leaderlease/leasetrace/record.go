package leasetrace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"
)

const (
	// Room is the size of a Trace for a Recorder, which reads it every readEvery. A busy
	// leader makes some thousand events in that time.
	Room = 1 << 14

	readEvery = 50 * time.Millisecond
	// maxFile is the size in bytes at which a file is renamed, replacing the older one.
	maxFile     = 64 << 20
	olderSuffix = ".1"
)

// Recorder writes a trace to a file while the Lease runs.
type Recorder struct {
	name   string
	trace  *Trace
	failed func(error)
	limit  int64

	file    *os.File
	written int64
	last    uint64 // the newest event that was written
	buf     []byte

	once sync.Once
	stop chan struct{}
	done chan struct{}
}

// Record appends the trace of one process to the named file until Close. At 64 MiB it
// renames the file, appending ".1" to its name, and begins a new one. It fails if the file
// cannot be opened, or is a named pipe. A failed write ends the recording: the Recorder's
// goroutine calls failed once. failed must not call Close, which waits for it.
func Record(name string, trace *Trace, failed func(error)) (*Recorder, error) {
	return record(name, trace, maxFile, failed)
}

func record(name string, trace *Trace, limit int64, failed func(error)) (*Recorder, error) {
	start, begun := trace.Start()
	if !begun {
		return nil, errors.New("leasetrace: the trace has no events: start its Lease before Record")
	}
	r := &Recorder{name: name, trace: trace, failed: failed, limit: limit, stop: make(chan struct{}), done: make(chan struct{})}
	if err := r.open(start); err != nil {
		return nil, fmt.Errorf("leasetrace: %w", err)
	}
	go r.run()
	return r, nil
}

// Close writes the remaining events and the end of the process. Call it after the last
// call of the Lease. Close on a nil Recorder does nothing.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.once.Do(func() { close(r.stop) })
	<-r.done
}

func (r *Recorder) run() {
	defer close(r.done)
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	err := r.write()
	for stopping := false; err == nil && !stopping; {
		select {
		case <-tick.C:
		case <-r.stop:
			stopping = true
		}
		err = r.copy(stopping)
	}
	if err = errors.Join(err, r.file.Close()); err != nil {
		r.failed(fmt.Errorf("leasetrace: %w", err))
	}
}

// copy writes the new events.
func (r *Recorder) copy(ending bool) error {
	var some [256]Event
	for n := len(some); n == len(some); {
		n = r.trace.Since(r.last, some[:])
		r.buf = r.buf[:0]
		for i := range some[:n] {
			e := &some[i]
			if lost := e.Seq - r.last - 1; lost > 0 {
				r.buf = AppendLost(r.buf, lost)
			}
			r.buf, r.last = AppendEvent(r.buf, e), e.Seq
		}
		if err := r.write(); err != nil {
			return err
		}
	}
	if !ending {
		return r.rotate()
	}
	r.buf = AppendEnd(r.buf[:0], r.last)
	return r.write()
}

func (r *Recorder) write() error {
	n, err := r.file.Write(r.buf)
	r.written += int64(n)
	return err
}

// rotate renames a full file and begins a new one.
func (r *Recorder) rotate() error {
	if r.written < r.limit {
		return nil
	}
	if err := r.file.Close(); err != nil {
		return err
	}
	if err := os.Rename(r.name, r.name+olderSuffix); err != nil {
		return err
	}
	start, _ := r.trace.Start()
	if err := r.open(start); err != nil {
		return err
	}
	return r.write()
}

// open opens the file for append, and prepares the first line for the next write. An
// earlier process may have stopped in the middle of a line.
func (r *Recorder) open(start Start) error {
	if info, err := os.Stat(r.name); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return fmt.Errorf("%s is a named pipe, and opening it would wait for a reader: name a file", r.name)
	}
	f, err := os.OpenFile(r.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r.file, r.written, r.buf = f, info.Size(), r.buf[:0]
	if !info.Mode().IsRegular() {
		r.limit = math.MaxInt64 // never rename a terminal or a device
	}
	if r.written > 0 {
		r.buf = append(r.buf, '\n')
	}
	r.buf = AppendStart(r.buf, start, time.Now())
	return nil
}

// Write writes processes in the format of Record.
func Write(w io.Writer, all []Process) error {
	for i := range all {
		p := &all[i]
		b := AppendStart(nil, p.Start, time.Time{})
		for k := range p.Events {
			b = AppendEvent(b, &p.Events[k])
		}
		if p.Ended {
			b = AppendEnd(b, p.last())
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
