package raftwal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// Log is a raft log on disk. All its methods are safe for concurrent use. Writes are
// serialized. Tail and FreesAt wait for a write in progress, other reads do not.
type Log struct {
	cfg    Config  // immutable
	dir    fs.FS   // immutable
	report Report  // immutable: what Open found
	spares *spares // immutable; nil after OpenReadOnly
	stats  counters

	// w has the state of writers. Its lock is taken before mu's, and held during IO.
	w struct {
		ioMutex
		lock   io.Closer
		failed error // of all later writes
		// hard is the hard state on disk. The view's may have a newer commit
		// index, which the next batch of Save contains.
		hard hardState
		// seg is the last segment. tail.end is the place of the next batch.
		seg  *segment
		tail tail

		batch, head batch    // memory for the next ones
		offsets     []uint32 // of the batch's entries
	}

	// mu has the state of readers. Writers change it after the write is durable.
	mu struct {
		sync.RWMutex
		closed   bool
		view     view
		segments []*segment
	}
}

// Open opens a log, or makes an empty one. It removes an incomplete last batch. For other
// damage it returns a CorruptError and changes nothing. Torn names the exceptions.
func Open(cfg Config) (*Log, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, err := cfg.directory(true)
	if err != nil {
		return nil, fmt.Errorf("raftwal: open the directory: %w", err)
	}
	lock, err := dir.Lock(lockName)
	if err != nil {
		return nil, fmt.Errorf("raftwal: lock the log: %w", err)
	}
	cfg.Logger = cfg.Logger.With("component", "raftwal")
	l := &Log{cfg: cfg, dir: dir}
	l.w.ioMutex = newIOMutex()
	l.stats.init()
	l.w.lock = lock
	if err := l.open(); err != nil {
		return nil, errors.Join(err, closeAll(l.mu.segments), lock.Close())
	}
	l.spares.start()
	return l, nil
}

// OpenReadOnly opens an existing log, changes nothing, and refuses writes. It takes no
// lock: if another process writes, the log may seem damaged.
func OpenReadOnly(cfg Config) (*Log, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	rec, dir, err := readLog(cfg, nil)
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: cfg, dir: dir}
	l.w.ioMutex = newIOMutex()
	l.stats.init()
	l.adopt(rec)
	l.w.failed = ErrReadOnly
	return l, nil
}

func (c *Config) directory(create bool) (fs.FS, error) {
	if c.FS != nil {
		return c.FS, nil
	}
	if create {
		if err := fs.MakeDir(c.Dir); err != nil {
			return nil, err
		}
	}
	return fs.OS(c.Dir)
}

func (l *Log) open() error {
	files, err := list(l.dir)
	if err != nil {
		return err
	}
	rec, err := recoverLog(l.dir.Open, files, l.cfg.MaxRecentBytes, nil)
	if err != nil && !errors.Is(err, ErrEmpty) {
		return err
	}
	if rec != nil {
		l.adopt(rec)
		if err := l.settle(); err != nil {
			return err
		}
	}
	if l.spares, err = openSpares(l.dir, &l.cfg, files.spares); err != nil {
		return err
	}
	if rec == nil {
		err = l.begin()
	} else {
		err = l.cut()
	}
	if err != nil {
		return err
	}
	if err := l.putMarker(files); err != nil {
		return err
	}
	return l.retire(l.dead())
}

// begin writes the first segment.
func (l *Log) begin() error {
	l.mu.view = newView(1, l.cfg.MaxRecentBytes)
	l.w.tail.number = 1
	if err := l.rotate(nil); err != nil {
		return err
	}
	l.report.fill(&l.mu.view, l.mu.segments)
	return nil
}

func (l *Log) adopt(rec *recovered) {
	l.mu.view, l.mu.segments, l.report = rec.view, rec.segments, rec.report
	l.w.hard = rec.view.hard
	l.w.seg = rec.segments[len(rec.segments)-1]
	l.w.tail = rec.tail
}

// Recovered returns the contents of the log at Open.
func (l *Log) Recovered() Report { return l.report }

// Close waits for the write in progress, writes a delayed commit index and closes the
// files. Reads in progress finish. It returns ErrClosed if it was called before.
func (l *Log) Close() error {
	l.w.Lock()
	defer l.w.Unlock()
	if errors.Is(l.w.failed, ErrClosed) {
		return ErrClosed
	}
	var errs []error
	if l.w.failed == nil {
		errs = append(errs, l.flushLocked(useState))
	}
	l.w.failed = ErrClosed
	if l.spares != nil {
		l.spares.stop()
	}
	l.mu.Lock()
	l.mu.closed = true
	errs = append(errs, closeAll(l.mu.segments))
	l.mu.Unlock()
	if l.w.lock != nil {
		errs = append(errs, l.w.lock.Close())
	}
	return errors.Join(errs...)
}

// fail makes err final.
func (l *Log) fail(err error) error {
	l.w.failed = &FailedError{Cause: err}
	return l.w.failed
}

// LoadLongestPromise returns the last argument of SaveLongestPromise, or 0. The two make Log a
// leaderlease.PromiseStore.
func (l *Log) LoadLongestPromise() (time.Duration, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.promise, nil
}

// SaveLongestPromise returns once d is durable. It writes only if d has changed, which is
// rare. So the renewal of a lease does not wait for the disk.
func (l *Log) SaveLongestPromise(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("raftwal: max promise %v must not be negative", d)
	}
	l.w.Lock()
	defer l.w.Unlock()
	if l.w.failed != nil {
		return l.w.failed
	}
	if d == l.mu.view.promise {
		return nil
	}
	b := &l.w.batch
	b.reset(keepBuffer)
	b.promise(d)
	if err := l.write(b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.view.promise = d
	return nil
}

// CheckLock returns ErrLocked if a process has opened the log in dir for writing. It
// changes nothing. A missing log is not locked. CheckLock holds the lock for a moment, and
// a concurrent Open tries again.
func CheckLock(dir string) error {
	if err := fs.CheckLock(filepath.Join(dir, lockName)); err != nil {
		return fmt.Errorf("raftwal: lock the log: %w", err)
	}
	return nil
}

// ioMutex is a mutex that is held during IO. In a bubble of testing/synctest a goroutine
// that waits for it is durably blocked, so the time of a slow disk is virtual. With a
// sync.Mutex the goroutine would not be, and the bubble's time would stop.
type ioMutex chan struct{}

func newIOMutex() ioMutex { return make(ioMutex, 1) }

// Lock locks the mutex.
func (m ioMutex) Lock() { m <- struct{}{} }

// Unlock unlocks the mutex.
func (m ioMutex) Unlock() { <-m }
