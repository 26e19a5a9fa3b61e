package raftwal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/leaderlease/go/raftwal/fs"
)

// spares keeps files that new segments are made of: of full size, every byte
// written once, so that appending to them changes no metadata of the file
// system, and a sync writes nothing but the data.
type spares struct {
	dir    fs.FS // immutable
	size   int64 // immutable
	max    int   // immutable
	inline bool  // immutable

	// want asks the background goroutine to go on with next; it is closed to end it.
	want chan struct{}
	done sync.WaitGroup
	next filling

	mu struct {
		sync.Mutex
		ready  []string
		number uint64 // of the next name
	}
}

// spare is a file that is about to become a segment.
type spare struct {
	name string
	file fs.File
}

// openSpares takes over the spares that an earlier process has left, and
// removes those of another size.
func openSpares(dir fs.FS, cfg *Config, ids []uint64) (*spares, error) {
	s := &spares{dir: dir, size: cfg.SegmentSize, max: cfg.MaxSpares, inline: cfg.Inline, want: make(chan struct{}, 1)}
	s.mu.number = 1
	for _, id := range ids {
		s.mu.number = max(s.mu.number, id+1)
		if err := s.adopt(spareName(id)); err != nil {
			return nil, fmt.Errorf("raftwal: take over %s: %w", spareName(id), err)
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

// keep adds a file of full size, unless there are enough.
func (s *spares) keep(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.ready) >= s.max {
		return false
	}
	s.mu.ready = append(s.mu.ready, name)
	return true
}

// room returns the name for one more spare, if one is wanted.
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

// take returns a spare of at least size bytes and exactly the usual size or
// that one.
func (s *spares) take(size int64) (*spare, error) {
	s.next.goal.Store(0) // of the segment that this one becomes
	s.next.failed.Store(false)
	if p, err := s.takeReady(size); p != nil || err != nil {
		return p, err
	}
	return s.finish(size)
}

// takeReady is take if there is a spare, and nil if not.
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

// name is that of a new file.
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

// stop ends the background goroutine. Nobody may take or follow any more.
func (s *spares) stop() {
	s.next.goal.Store(0) // what is made from here on would be discarded
	close(s.want)
	s.done.Wait()
	if p := s.next.spare; p != nil {
		_ = s.discard(p) // the next Open removes it, too
	}
}

// filling is the spare that becomes the next segment, as far as it has been made.
//
// It is made in pieces while the second half of the newest segment is filled: as many
// bytes of 64 MiB in one piece are what each sync of the log waits for, 0.3 s on a disk
// that three members share, and all members are full at the same time. In the first half a
// compaction may free a segment, of which a spare is made for nothing.
type filling struct {
	goal atomic.Int64 // how much of it is to be made by now; the log's writer stores it
	// failed ends the background's attempts until the next segment begins. The Save that needs
	// the spare tries again, and tells its caller why not.
	failed atomic.Bool

	sync.Mutex        // held while a piece is made
	spare      *spare // nil before the first piece
	made       int64
}

// A piece is what is written between two syncs of a spare, maxPiece or a part of a small
// segment. More: the log waits for it. Less: each sync has the file system write the file's
// size.
const (
	maxPiece     = 1 << 20
	piecesAtMost = 64
)

func (s *spares) piece() int64 { return min(maxPiece, s.size/piecesAtMost) }

// zeros is what a new file is filled with, a bit of a piece at a time.
var zeros [256 << 10]byte

// follow has the next spare be made as far as the newest segment, of which so many bytes
// are used, asks for. The log's writer only.
func (s *spares) follow(used, size int64) {
	n := &s.next
	goal := 2*used - size
	if s.inline || goal < n.goal.Load()+s.piece() {
		return
	}
	n.goal.Store(goal)
	select {
	case s.want <- struct{}{}:
	default: // it has been asked already
	}
}

// prepare makes spares in the background, unless segments have become free.
func (s *spares) prepare() {
	for range s.want {
		for s.more() {
		}
	}
}

// more makes a piece, if one is asked for.
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

// lacks reports whether there is no spare, and may be one.
func (s *spares) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.ready) == 0 && s.max > 0
}

// pop hands the spare over, and begins with the next one.
func (n *filling) pop() *spare {
	p := n.spare
	n.spare, n.made = nil, 0
	return p
}

// finish makes what is left of the next spare, or all of one of another size.
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

// fill writes every byte of a file up to one, and syncs it. What is in the page cache, or
// only reserved, would have to be paid for by each append. A file that cannot be filled is
// removed.
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

// unfit gives up a file that could not be made.
func (s *spares) unfit(n *filling, what string, err error) error {
	p := n.pop()
	return fmt.Errorf("%s %s: %w", what, p.name, errors.Join(err, s.discard(p)))
}
