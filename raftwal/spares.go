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
