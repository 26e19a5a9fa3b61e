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

// Log is a raft log on disk. One goroutine at a time writes, any number read;
// all methods may be called concurrently.
type Log struct {
	cfg    Config  // immutable
	dir    fs.FS   // immutable
	report Report  // immutable: what Open found
	spares *spares // immutable; nil if it is only read
	stats  counters

	// w is what writers need. Its lock is taken before mu's, and held while the
	// disk is slow.
	w struct {
		turn
		lock   io.Closer
		failed error // why nothing can be written any more
		// hard is the hard state on disk. The view's may have a newer commit
		// index, which goes along with the next batch.
		hard hardState
		// seg is the last segment, and tail where the next batch goes.
		seg  *segment
		tail tail

		batch, head batch    // memory for the next ones
		offsets     []uint32 // of the batch's entries
	}

	// mu is what readers need. Writers change it once it is durable.
	mu struct {
		sync.RWMutex
		closed   bool
		view     view
		segments []*segment
	}
}

// Open opens the log that cfg describes, and begins an empty one if there is
// none. It cuts a torn tail; of any other damage it returns a CorruptError and
// changes nothing.
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
	l.w.turn = newTurn()
	l.stats.init()
	l.w.lock = lock
	if err := l.open(); err != nil {
		return nil, errors.Join(err, closeAll(l.mu.segments), lock.Close())
	}
	l.spares.start()
	return l, nil
}

// OpenReadOnly opens a log that exists, changes nothing, and refuses writes. It
// takes no lock: if another process writes, what is read may seem damaged.
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
	l.w.turn = newTurn()
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

// Recovered says what Open found.
func (l *Log) Recovered() Report { return l.report }

// Close writes what was put off, waits for the write under way and closes the
// files. Readers that are still at it finish. It returns ErrClosed if it was
// called before.
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

// LoadMaxPromise returns what was saved last, or 0. With SaveMaxPromise it
// makes the log a leaderlease.PromiseStore.
func (l *Log) LoadMaxPromise() (time.Duration, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mu.closed {
		return 0, ErrClosed
	}
	return l.mu.view.promise, nil
}

// SaveMaxPromise returns once d is durable. It writes only if d has changed,
// which is seldom: a renewal does not wait for the disk.
func (l *Log) SaveMaxPromise(d time.Duration) error {
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

// CheckLock returns ErrLocked if a process has the log in dir open. It changes
// nothing, and a log that is missing is not locked. For a moment it holds the lock
// itself; an Open just then tries again.
func CheckLock(dir string) error {
	if err := fs.CheckLock(filepath.Join(dir, lockName)); err != nil {
		return fmt.Errorf("raftwal: lock the log: %w", err)
	}
	return nil
}

// turn is a mutex that may be held while the disk is slow. Who waits for it is durably
// blocked, so that a slow disk takes virtual time in a bubble of testing/synctest; who
// waits for a sync.Mutex is not, and time stands still.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits for its turn.
func (t turn) Lock() { t <- struct{}{} }

// Unlock lets the next one have it.
func (t turn) Unlock() { <-t }
