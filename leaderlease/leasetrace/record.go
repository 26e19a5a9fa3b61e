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
	// Room is how many events a Trace should keep for a Recorder, which reads it each
	// readEvery: a busy leader makes some thousand of them in that time.
	Room = 1 << 14

	readEvery = 50 * time.Millisecond
	// maxFile is after how many bytes a file is put aside, and the one that was put
	// aside before is removed.
	maxFile     = 64 << 20
	olderSuffix = ".1"
)

// Recorder writes a trace to a file while the Lease is at work.
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

// Record appends the trace of one process to the named file until Close. At 64 MiB the
// file is renamed to that of the same name and ".1", and a new one begins. It fails if
// the file cannot be opened, or is a named pipe. A write that fails ends the trace: failed is called once,
// on the Recorder's goroutine, and nothing else comes of it. It must not call Close, which
// waits for it.
func Record(name string, trace *Trace, failed func(error)) (*Recorder, error) {
	return record(name, trace, maxFile, failed)
}

func record(name string, trace *Trace, limit int64, failed func(error)) (*Recorder, error) {
	start, begun := trace.Start()
	if !begun {
		return nil, errors.New("leasetrace: record a trace whose Lease has not begun")
	}
	r := &Recorder{name: name, trace: trace, failed: failed, limit: limit, stop: make(chan struct{}), done: make(chan struct{})}
	if err := r.open(start); err != nil {
		return nil, fmt.Errorf("leasetrace: %w", err)
	}
	go r.run()
	return r, nil
}

// Close writes what is left, and that the process has ended. Call it when the Lease
// is told of nothing any more. A nil Recorder has nothing to close.
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

// copy writes what is new.
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

// rotate puts a file aside that is full.
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

// open goes on where an earlier process has stopped, maybe in the middle of a line. The
// first line is to be written next.
func (r *Recorder) open(start Start) error {
	if info, err := os.Stat(r.name); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return fmt.Errorf("%s is a named pipe: to open it waits for its reader, so name a file", r.name)
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
		r.limit = math.MaxInt64 // a terminal or a device is nobody's to rename
	}
	if r.written > 0 {
		r.buf = append(r.buf, '\n')
	}
	r.buf = AppendStart(r.buf, start, time.Now())
	return nil
}

// Write writes processes to a file, as Record would have.
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
