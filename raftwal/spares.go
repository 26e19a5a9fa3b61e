package raftwal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/raftwal/fs"
)

// spares prepares files for new segments. Every byte of a spare was written once, so that
// appending changes no metadata of the file system, and a sync writes only the data.
type spares struct {
	dir    fs.FS // immutable
	size   int64 // immutable
	max    int   // immutable
	inline bool  // immutable

	// want wakes the background goroutine to continue with next. Closing it ends the
	// goroutine.
	want chan struct{}
	done sync.WaitGroup
	next filling

	mu struct {
		sync.Mutex
		ready  []string
		number uint64 // of the next name
	}
}

// spare is an open file that will become a segment.
type spare struct {
	name string
	file fs.File
}

// openSpares adopts the spares of an earlier process. It removes those of another size or
// above the maximum.
func openSpares(dir fs.FS, cfg *Config, ids []uint64) (*spares, error) {
	s := &spares{dir: dir, size: cfg.SegmentSize, max: cfg.MaxSpares, inline: cfg.Inline, want: make(chan struct{}, 1)}
	s.mu.number = 1
	for _, id := range ids {
		s.mu.number = max(s.mu.number, id+1)
		if err := s.adopt(spareName(id)); err != nil {
			return nil, fmt.Errorf("raftwal: adopt %s: %w", spareName(id), err)
		}
	}
	return s, nil
}

func (s *spares) adopt(name string) error {
	f, err := s.dir.Open(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if size == s.size && s.keep(name) {
		return nil
	}
	return s.dir.Remove(name)
}

// keep adds a complete file. It returns false if there are enough.
func (s *spares) keep(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.ready) >= s.max {
		return false
	}
	s.mu.ready = append(s.mu.ready, name)
	return true
}

// room returns a name for another spare. ok is false if there are enough spares.
func (s *spares) room() (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.ready) >= s.max {
		return "", false
	}
	return s.nameLocked(), true
}

func (s *spares) nameLocked() string {
	id := s.mu.number
	s.mu.number++
	return spareName(id)
}

// take returns a spare of size bytes.
func (s *spares) take(size int64) (*spare, error) {
	s.next.goal.Store(0) // for the segment that begins now
	s.next.failed.Store(false)
	if p, err := s.takeReady(size); p != nil || err != nil {
		return p, err
	}
	return s.finish(size)
}

// takeReady is take, but returns nil if no spare is ready.
func (s *spares) takeReady(size int64) (*spare, error) {
	s.mu.Lock()
	if size != s.size || len(s.mu.ready) == 0 {
		s.mu.Unlock()
		return nil, nil
	}
	name := s.mu.ready[0]
	s.mu.ready = slices.Delete(s.mu.ready, 0, 1)
	s.mu.Unlock()
	f, err := s.dir.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &spare{name: name, file: f}, nil
}

// name returns the name of a new file.
func (s *spares) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nameLocked()
}

// discard closes and removes a spare.
func (s *spares) discard(p *spare) error {
	return errors.Join(p.file.Close(), s.dir.Remove(p.name))
}

func (s *spares) start() {
	if !s.inline {
		s.done.Go(s.prepare)
	}
}

// stop ends the background goroutine. Do not call take or follow afterwards.
func (s *spares) stop() {
	s.next.goal.Store(0) // further pieces would be discarded
	close(s.want)
	s.done.Wait()
	if p := s.next.spare; p != nil {
		_ = s.discard(p) // the next Open removes it, too
	}
}

// filling is the spare for the next segment, while it is made.
//
// It is made in pieces while the second half of the newest segment is filled. If 64 MiB
// were written at once, each sync of the log would wait for them: 0.3 s on a disk that three
// members share, and all members reach that point at the same time. In the first half,
// compaction may free a segment, which becomes a spare without any write.
type filling struct {
	goal atomic.Int64 // bytes to make by now; set by the log's writer
	// failed stops the attempts in the background until the next segment begins. The Save
	// that needs the spare tries again and returns the error.
	failed atomic.Bool

	sync.Mutex        // held while a piece is made
	spare      *spare // nil before the first piece
	made       int64
}

// A piece is the part of a spare that is written between two syncs: at most maxPiece bytes, and at
// most 1/minPieces of the spare. The log's syncs wait for a piece that is written at the same time.
// Each sync of a piece also writes the file's size, so much smaller pieces cost more.
const (
	maxPiece  = 1 << 20
	minPieces = 64
)

func (s *spares) piece() int64 { return min(maxPiece, s.size/minPieces) }

// zeros is the content of one write into a new file.
var zeros [256 << 10]byte

// follow sets the goal for the next spare by the used bytes of the newest segment. Only the
// log's writer calls it.
func (s *spares) follow(used, size int64) {
	n := &s.next
	goal := 2*used - size
	if s.inline || goal < n.goal.Load()+s.piece() {
		return
	}
	n.goal.Store(goal)
	select {
	case s.want <- struct{}{}:
	default: // the goroutine is already awake
	}
}

// prepare makes spares in the background, unless compaction has freed segments.
func (s *spares) prepare() {
	for range s.want {
		for s.more() {
		}
	}
}

// more makes a piece if the goal needs one, and reports whether it may need another.
func (s *spares) more() bool {
	n := &s.next
	n.Lock()
	defer n.Unlock()
	if n.failed.Load() || n.made >= n.goal.Load() || !s.lacks() {
		return false
	}
	if err := s.fill(n, min(n.made+s.piece(), s.size)); err != nil {
		n.failed.Store(true)
		return false
	}
	if n.made < s.size {
		return true
	}
	p := n.pop()
	if err := p.file.Close(); err != nil || !s.keep(p.name) {
		_ = s.dir.Remove(p.name) // the next Open tries again
	}
	return false
}

// lacks reports whether a spare is needed.
func (s *spares) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.ready) == 0 && s.max > 0
}

// pop returns the spare and begins the next one.
func (n *filling) pop() *spare {
	p := n.spare
	n.spare, n.made = nil, 0
	return p
}

// finish makes the rest of the next spare. One of another size is made as a whole.
func (s *spares) finish(size int64) (*spare, error) {
	n := &s.next
	if size != s.size {
		n = &filling{}
	}
	n.Lock()
	defer n.Unlock()
	// The background may have made its last piece meanwhile.
	if ready, err := s.takeReady(size); ready != nil || err != nil {
		return ready, err
	}
	if err := s.fill(n, size); err != nil {
		return nil, err
	}
	return n.pop(), nil
}

// fill writes zeros into a file up to offset to, and syncs it. Otherwise each append would
// pay for the allocation. It removes a file that it cannot fill.
func (s *spares) fill(n *filling, to int64) error {
	if n.spare == nil {
		name := s.name()
		f, err := s.dir.Create(name)
		if err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		n.spare = &spare{name: name, file: f}
	}
	for n.made < to {
		piece := zeros[:min(int64(len(zeros)), to-n.made)]
		if _, err := n.spare.file.WriteAt(piece, n.made); err != nil {
			return s.unfit(n, "fill", err)
		}
		n.made += int64(len(piece))
	}
	if err := n.spare.file.Sync(); err != nil {
		return s.unfit(n, "sync", err)
	}
	return nil
}

// unfit discards a file that could not be filled.
func (s *spares) unfit(n *filling, what string, err error) error {
	p := n.pop()
	return fmt.Errorf("%s %s: %w", what, p.name, errors.Join(err, s.discard(p)))
}
