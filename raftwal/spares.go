package raftwal

import (
	"errors"
	"fmt"
	"slices"
	"sync"

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

	// want asks the background goroutine for a spare; it is closed to end it.
	want chan struct{}
	done sync.WaitGroup

	mu struct {
		sync.Mutex
		ready []string
		next  uint64 // number of the next name
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
	s.mu.next = 1
	for _, id := range ids {
		s.mu.next = max(s.mu.next, id+1)
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
	id := s.mu.next
	s.mu.next++
	return spareName(id)
}

// take returns a spare of at least size bytes and exactly the usual size or
// that one.
func (s *spares) take(size int64) (*spare, error) {
	s.mu.Lock()
	var name string
	ready := size == s.size && len(s.mu.ready) > 0
	if ready {
		name = s.mu.ready[0]
		s.mu.ready = slices.Delete(s.mu.ready, 0, 1)
	} else {
		name = s.nameLocked()
	}
	s.mu.Unlock()
	s.ask()
	if !ready {
		return s.make(name, size)
	}
	f, err := s.dir.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &spare{name: name, file: f}, nil
}

// zeros is what a new file is filled with, a piece at a time.
var zeros [256 << 10]byte

// make creates a file, writes every byte of it and syncs it. What is in the
// page cache, or only reserved, would have to be paid for by each append.
func (s *spares) make(name string, size int64) (*spare, error) {
	f, err := s.dir.Create(name)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	p := &spare{name: name, file: f}
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, errors.Join(err, s.discard(p)))
		}
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("sync %s: %w", name, errors.Join(err, s.discard(p)))
	}
	return p, nil
}

// discard closes and removes a spare.
func (s *spares) discard(p *spare) error {
	return errors.Join(p.file.Close(), s.dir.Remove(p.name))
}

// ask has one more spare prepared in the background.
func (s *spares) ask() {
	if s.inline {
		return
	}
	select {
	case s.want <- struct{}{}:
	default: // it has been asked already
	}
}

func (s *spares) start() {
	if !s.inline {
		s.done.Go(s.prepare)
	}
	s.ask()
}

// stop ends the background goroutine. Nobody may take or ask any more.
func (s *spares) stop() {
	close(s.want)
	s.done.Wait()
}

// prepare makes a spare whenever there is none. If it cannot, the Save that
// needs one tries again, and tells its caller why not.
func (s *spares) prepare() {
	for range s.want {
		s.mu.Lock()
		empty := len(s.mu.ready) == 0 && s.max > 0
		name := s.nameLocked()
		s.mu.Unlock()
		if !empty {
			continue
		}
		p, err := s.make(name, s.size)
		if err != nil {
			continue
		}
		if err := p.file.Close(); err != nil || !s.keep(name) {
			_ = s.dir.Remove(name) // the next Open tries again
		}
	}
}
