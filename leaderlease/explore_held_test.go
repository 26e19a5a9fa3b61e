package leaderlease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// held is a node that makes promises, and would elect itself (V5). Its Ready must not come
// back before the newest promise that a leader was told of has ended.
type held struct {
	*puppet
	// truth is how long it has been, owed until when a leader may rely on this node.
	truth, owed time.Duration
	reading     int64 // of the clock, also while that cannot be read
	dead        bool
	sent        core.Instant
	bad         string
	// freed: it was let go after it owed something.
	freed bool
}

const promised = 900 * ms

var candidate = raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}

// heldSteps are what may happen.
var heldSteps = []struct {
	name string
	do   func(*held)
}{
	{"grant", (*held).grant},
	{"time passes", func(h *held) { h.pass(promised/2, promised/2) }},
	{"the clock stands still", func(h *held) { h.pass(promised, 0) }},
	{"disrupted", func(h *held) { h.pass(0, time.Hour); h.clock.marker.Add(1) }},
	{"the clock dies", func(h *held) { h.lives(false) }},
	{"the clock lives", func(h *held) { h.lives(true) }},
	{"WouldBlock", func(h *held) { h.judge(h.WouldBlock(candidate)) }},
	{"Ready", (*held).ready},
}

// pass lets time pass, and the lease clock show it or not.
func (h *held) pass(truth, lease time.Duration) {
	h.truth += truth
	h.reading += int64(lease)
	h.lives(!h.dead)
	time.Sleep(2 * promised) // Go's clock has no say
}

func (h *held) lives(does bool) {
	if h.dead = !does; h.dead {
		h.clock.reading.Store(0)
		return
	}
	h.clock.reading.Store(h.reading)
}

func (h *held) grant() {
	h.follow(2, 3)
	m := h.message(raftpb.MsgHeartbeat, 3, 1)
	h.sent++
	attachProbe(m, core.Probe{Sent: h.sent, Duration: promised})
	h.Incoming(m)
	out := h.puppet.Ready(raft.Ready{Messages: []*raftpb.Message{h.message(raftpb.MsgHeartbeatResp, 1, 3)}})
	if _, err := grantOf(out[0]); err == nil {
		h.owed = h.truth + promised
	}
}

func (h *held) judge(blocks bool) {
	if !blocks && h.truth < h.owed {
		h.bad = fmt.Sprintf("it is let go at %v, and a leader relies on it until %v", h.truth, h.owed)
	}
	h.freed = h.freed || (!blocks && h.owed > 0)
}

// ready has Ready hold the node back while time passes. A clock that is dead lives again
// after a while.
func (h *held) ready() {
	done := make(chan struct{})
	go func() {
		rd := candidate
		h.Lease.Ready(&rd)
		close(done)
	}()
	for i := range 100 {
		synctest.Wait()
		select {
		case <-done:
			h.judge(false)
			return
		default:
			h.pass(promised/10, promised/10)
			h.lives(!h.dead || i > 50)
		}
	}
	h.bad = "Ready does not come back"
	<-done
}

// TestExploreHeldBack plays every script of a few steps that begins with a grant.
func TestExploreHeldBack(t *testing.T) {
	depth := searched(4)
	plays, freed := 0, false
	var path []int
	var walk func(deeper int)
	walk = func(deeper int) {
		plays++
		h := playHeld(t, path)
		if h.bad != "" {
			t.Fatalf("COUNTEREXAMPLE search=held-back depth=%d states=%d\n%s\ngrant\n%s", len(path), plays, h.bad, heldScript(path))
		}
		freed = freed || h.freed
		if deeper == 0 || (len(path) > 0 && heldSteps[path[len(path)-1]].name == "Ready") {
			return
		}
		for i := range heldSteps {
			path = append(path, i)
			walk(deeper - 1)
			path = path[:len(path)-1]
		}
	}
	for d := 1; d <= depth; d++ {
		walk(d)
	}
	if !freed && depth == 4 {
		t.Error("GOAL \"a node is let go\" in held-back")
	}
	t.Logf("%d plays", plays)
}

func playHeld(t *testing.T, path []int) *held {
	t.Helper()
	var h *held
	synctest.Test(t, func(t *testing.T) {
		h = &held{puppet: newPuppet(t)}
		h.reading = h.clock.reading.Load()
		h.grant()
		for _, i := range path {
			heldSteps[i].do(h)
		}
	})
	return h
}

func heldScript(path []int) string {
	var b strings.Builder
	for _, i := range path {
		b.WriteString(heldSteps[i].name + "\n")
	}
	return b.String()
}

// TestExploreStopped stops a wrapped node that is held back, after every script of a
// few steps: Stop takes no time, whatever the clocks show.
func TestExploreStopped(t *testing.T) {
	names := []string{"time passes", "the lease clock stands still", "the lease clock dies"}
	for _, first := range names {
		for _, second := range names {
			synctest.Test(t, func(t *testing.T) {
				rc, cfg, clock := soleVoter(t)
				inner := raft.RestartNode(rc)
				n, _, err := Wrap(inner, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if err := inner.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{first, second} {
					time.Sleep(promised / 4)
					switch name {
					case "time passes":
						clock.Advance(promised / 4)
					case "the lease clock dies":
						clock.reading.Store(0)
					}
				}
				good := int64(2 * time.Hour) // what a Stop that waits would end at
				defer time.AfterFunc(time.Hour, func() { clock.reading.Store(good) }).Stop()
				began := time.Now()
				n.Stop()
				if took := time.Since(began); took != 0 {
					t.Errorf("COUNTEREXAMPLE search=stopped depth=2 states=9\n%s\n%s\nStop takes %v", first, second, took)
				}
			})
		}
	}
}

// slowDisk is a PromiseStore that several processes use, one after another. A save takes as
// long as the script says, and may fail with or without its effect.
type slowDisk struct {
	kept     time.Duration
	underWay int
	answer   chan error
	// writes is what the save under way is for.
	writes time.Duration
}

func (d *slowDisk) LoadLongestPromise() (time.Duration, error) { return d.kept, nil }

func (d *slowDisk) SaveLongestPromise(of time.Duration) error {
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
