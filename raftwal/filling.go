package raftwal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

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
	if p, err := s.takeReady(size); p != nil || err != nil {
		return p, err
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
