package raftwal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

// script is a fixed sequence of steps, and the states between them.
type script struct {
	steps  []step
	states []*model // one more than steps
}

func drawScript(seed uint64, n int) *script {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &script{states: []*model{newModel()}}
	for i := range n {
		st := draw(s.states[i], r)
		next := s.states[i].clone()
		st.apply(next)
		s.steps = append(s.steps, st)
		s.states = append(s.states, next)
	}
	return s
}

// play runs the script on disk until it ends or an error occurs, and returns
// how many steps have returned.
func (s *script) play(disk *fs.Memory) (done int, l *Log, err error) {
	open := func() (*Log, error) { return Open(testConfig(disk)) }
	if l, err = open(); err != nil {
		return 0, nil, err
	}
	for i := range s.steps {
		if l, err = s.steps[i].run(l, open); err != nil {
			return i, l, fmt.Errorf("step %d, %s: %w", i, s.steps[i].name, err)
		}
	}
	return len(s.steps), l, nil
}

// processOnly is the end of the process without a crash of the machine. It is
// the last variant, since it takes the disk over.
const processOnly fs.Survival = -1

// TestCrashAtEveryOperation runs a script once for each operation on the file
// system, crashes there, and opens what several kinds of crash leave: every
// step that has returned is there, and the one under way wholly or not at all.
// What Open has found stays, whatever crash comes next.
func TestCrashAtEveryOperation(t *testing.T) {
	s := drawScript(1, 520)
	disk := fs.NewMemory()
	_, l, err := s.play(disk)
	must(t, err)
	must(t, s.states[len(s.steps)].check(l, false))
	must(t, l.Close())
	total, stride := disk.Ops(), 1
	if testing.Short() {
		stride = 11
	}
	torn := 0
	for n := 1; n <= total; n += stride {
		disk := fs.NewMemory()
		disk.SetHook(fs.CrashAt(n))
		done, _, err := s.play(disk)
		if !errors.Is(err, fs.ErrCrashed) {
			t.Fatalf("crash in operation %d of %d: %v", n, total, err)
		}
		for variant, keep := range []fs.Survival{fs.Nothing, fs.Everything, fs.Something, fs.Something, processOnly} {
			var after *fs.Memory
			if keep == processOnly {
				after = disk.EndProcess()
			} else {
				after = disk.Crash(keep, rand.New(rand.NewPCG(uint64(n), uint64(variant))))
			}
			found, err := s.afterCrash(after, done)
			if err != nil {
				t.Fatalf("crash in operation %d (step %d, %s), variant %d: %v", n, done, s.steps[min(done, len(s.steps)-1)].name, variant, err)
			}
			if found.Torn != nil {
				torn++
			}
		}
	}
	t.Logf("%d steps, %d operations, %d torn tails", len(s.steps), total, torn)
	if torn == 0 {
		t.Error("no crash has left a torn tail: the test does not test that")
	}
}

// afterCrash opens disk, on which the script has done so many steps and was at
// the next, and checks that it can go on.
func (s *script) afterCrash(disk *fs.Memory, done int) (*Report, error) {
	l, err := Open(testConfig(disk))
	if err != nil {
		return nil, err
	}
	state := s.states[done]
	if err := state.check(l, true); err != nil {
		if done == len(s.steps) {
			return nil, err
		}
		state = s.states[done+1]
		if after := state.check(l, true); after != nil {
			return nil, fmt.Errorf("neither before the step: %w; nor after it: %w", err, after)
		}
	}
	if err := expectDurable(disk, state); err != nil {
		return nil, fmt.Errorf("what Open has found is not durable: %w", err)
	}
	// A second crash after one more append must bring that back as well.
	next := Update{Entries: entries(state.hard.term+1, state.last()+1, state.last()+3, 200), HardState: hard(state.hard.term+1, 0, state.hard.commit)}
	if err := l.SaveAll([]Update{next}); err != nil {
		return nil, fmt.Errorf("the first Save after a crash: %w", err)
	}
	want := state.clone()
	want.save(next)
	again, err := Open(testConfig(disk.Crash(fs.Nothing, nil)))
	if err != nil {
		return nil, fmt.Errorf("after a second crash: %w", err)
	}
	found := l.Recovered()
	return &found, errors.Join(want.check(again, true), again.Close())
}

// expectDurable checks what a crash that loses all it can would leave of disk.
func expectDurable(disk *fs.Memory, state *model) error {
	l, err := Open(testConfig(disk.Durable()))
	if err != nil {
		return err
	}
	return errors.Join(state.check(l, true), l.Close())
}
