package leaderlease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// slowDisk is a PromiseStore that several processes use, one after another. A save takes as
// long as the script says, and may fail with or without its effect.
type slowDisk struct {
	kept     time.Duration
	underWay int
	answer   chan error
	// writes is what the save under way is for.
	writes time.Duration
}

func (d *slowDisk) LoadMaxPromise() (time.Duration, error) { return d.kept, nil }

func (d *slowDisk) SaveMaxPromise(of time.Duration) error {
	if d.answer == nil { // New does it
		d.kept = of
		return nil
	}
	d.writes = of
	d.underWay++
	defer func() { d.underWay-- }()
	return <-d.answer
}

// saves is a follower of a leader that asks for long and short promises, through several
// processes that keep the longest one on one disk (V6).
type saves struct {
	*puppet
	disk *slowDisk
	// truth is how long it has been, owed until when a leader may rely on this node.
	truth, owed time.Duration
	long        bool // a long promise was made
	disrupted   bool
	trusted     bool          // one was made after a disruption
	closing     chan struct{} // is closed when Close has returned; nil if it was not called
	bad         string
}

// saveSteps are what may happen. Each reports whether it could.
var saveSteps = []struct {
	name string
	do   func(*saves) bool
}{
	{"a long promise is asked for", func(s *saves) bool { return s.asked(900 * ms) }},
	{"a short promise is asked for", func(s *saves) bool { return s.asked(300 * ms) }},
	{"time passes", func(s *saves) bool { return s.pass(300 * ms) }},
	{"long time passes", func(s *saves) bool { return s.pass(900 * ms) }},
	{"it is written", (*saves).written},
	{"the save ends", func(s *saves) bool { s.written(); return s.ends(nil) }},
	{"the save fails", func(s *saves) bool { return s.ends(errors.New("broken on purpose")) }},
	{"disrupted", func(s *saves) bool { s.clock.marker.Add(1); s.disrupted = true; return true }},
	{"Close", (*saves).close},
	{"the process dies", func(s *saves) bool { s.dies(); return true }},
}

func (s *saves) asked(d time.Duration) bool {
	if s.asked2(d) {
		s.owed, s.long = max(s.owed, s.truth+d), s.long || d == 900*ms
		s.trusted = s.trusted || (s.disrupted && d == 900*ms)
	}
	return true
}

func (s *saves) pass(d time.Duration) bool {
	s.truth += d
	s.clock.Advance(d)
	s.Tick()
	return true
}

func (s *saves) written() bool {
	if s.disk.underWay == 0 || s.disk.kept == s.disk.writes {
		return false
	}
	s.disk.kept = s.disk.writes
	return true
}

func (s *saves) ends(err error) bool {
	if s.disk.underWay == 0 {
		return false
	}
	s.disk.answer <- err
	return true
}

func (s *saves) close() bool {
	if s.closing != nil {
		return false
	}
	c := make(chan struct{})
	s.closing = c
	go func() {
		s.Close()
		close(c)
	}()
	return true
}

// dies ends the process, if there is one, and begins another, in a term of the disk.
func (s *saves) dies() {
	s.end()
	s.disk.answer, s.closing = nil, nil
	s.puppet = saver(s.t, s.disk, func(c *Config) {
		storage := bootstrapped(s.t, 1, 2, 3)
		c.Raft.Storage = storage
		if err := storage.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
			s.t.Fatal(err)
		}
	})
	s.disk.answer = make(chan error)
	if hold := s.Info().Promise.Hold; s.truth+hold < s.owed {
		s.bad = fmt.Sprintf("at %v a new process holds for %v, and a leader relies on it until %v", s.truth, hold, s.owed)
	}
}

// end lets go whatever waits for the disk, and leaves no effect there.
func (s *saves) end() {
	s.close()
	for range 2 {
		synctest.Wait()
		s.ends(errors.New("the process is dead"))
	}
	synctest.Wait()
}

// judge looks at what must be so after each step.
func (s *saves) judge() {
	synctest.Wait()
	switch closed := s.closed(); {
	case s.bad != "":
	case s.owed-s.truth > s.disk.kept:
		s.bad = fmt.Sprintf("at %v a leader relies on this node until %v, and a restart would hold for %v", s.truth, s.owed, s.disk.kept)
	case s.disk.underWay > 1:
		s.bad = fmt.Sprintf("%d saves are under way", s.disk.underWay)
	case closed && s.disk.underWay > 0:
		s.bad = "a save is under way, and Close has returned"
	}
}

func (s *saves) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// TestExploreSaves plays every script of a few steps: in a new group, and where a process
// of an old version, which saved nothing, has made a promise and died.
func TestExploreSaves(t *testing.T) {
	for _, old := range []bool{false, true} {
		plays, raised, fell, trusted := 0, false, false, false
		var path []int
		var walk func(deeper int)
		walk = func(deeper int) {
			plays++
			s, could := playSaves(t, path, old)
			if s.bad != "" {
				t.Fatalf("COUNTEREXAMPLE search=saves depth=%d states=%d\n%s\n%s", len(path), plays, saveScript(path), s.bad)
			}
			raised = raised || s.long
			fell = fell || (s.long && s.disk.kept == 300*ms)
			trusted = trusted || s.trusted
			if deeper == 0 || !could {
				return
			}
			for i := range saveSteps {
				path = append(path, i)
				walk(deeper - 1)
				path = path[:len(path)-1]
			}
		}
		depth := searched(4)
		for d := range depth + 1 {
			walk(d)
		}
		if depth == 4 && (!raised || !trusted || fell != old) { // of the new group it falls after more steps
			t.Errorf("GOAL in saves: a longer promise was made: %v, after a disruption: %v, what is saved has fallen: %v", raised, trusted, fell)
		}
		t.Logf("%d plays", plays)
	}
}

// playSaves reports also whether the last step could be taken.
func playSaves(t *testing.T, path []int, old bool) (s *saves, could bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = &saves{disk: &slowDisk{}}
		s.puppet, could = saver(t, s.disk), true
		s.disk.answer = make(chan error)
		if old {
			s.disk.kept, s.owed = 0, 900*ms
			s.dies()
		}
		s.judge()
		for _, i := range path {
			could = saveSteps[i].do(s)
			s.judge()
		}
		s.end()
	})
	return s, could
}

func saveScript(path []int) string {
	var b strings.Builder
	for _, i := range path {
		b.WriteString(saveSteps[i].name + "\n")
	}
	return b.String()
}
