package raftwal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"

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
		stride = 23
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

// childEnv is the directory of the log, in the process that is to be killed.
const childEnv = "RAFTWAL_TEST_CHILD"

// killConfig is a log of small segments, so that kills meet rotation,
// compaction and the background preparation of segments, too.
func killConfig(dir string) Config {
	return Config{Dir: dir, SegmentSize: 64 << 10, MaxRecentBytes: 16 << 10}
}

// child writes as fast as it can, through an Appender, and prints a line for
// each update that it is told is durable. It ends by being killed.
func child() {
	if err := childLoop(os.Getenv(childEnv)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func childLoop(dir string) error {
	l, err := Open(killConfig(dir))
	if err != nil {
		return err
	}
	h, _, err := l.InitialState()
	if err != nil {
		return err
	}
	term := h.GetTerm() + 1
	r := rand.New(rand.NewPCG(term, 4))
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	// A new leader replaces the end.
	if first := l.mu.view.base.index; last > first {
		last = max(first, last-r.Uint64N(4))
	}
	a := NewAppender(l, nil)
	for {
		n := 1 + r.Uint64N(8)
		e := entries(term, last+1, last+1+n, r.IntN(1000))
		last += n
		acked := last
		err := a.Append(Update{Entries: e, HardState: hard(term, 1, 0)}, func(err error) {
			if err != nil {
				fmt.Println("error:", err)
				return
			}
			fmt.Println("durable", term, acked, len(e[0].GetData()))
		})
		if err != nil {
			return err
		}
		if first, _ := l.FirstIndex(); last > first+500 {
			if err := childCompact(l, r); err != nil {
				return err
			}
		}
	}
}

// childCompact leaves about a hundred entries of those that are durable.
func childCompact(l *Log, r *rand.Rand) error {
	durable, err := l.LastIndex()
	if err != nil || durable < l.mu.view.base.index+200 {
		return err
	}
	at := durable - 100 - r.Uint64N(20)
	term, err := l.Term(at)
	if err != nil {
		return err
	}
	if err := l.SaveSnapshot(snapshot(term, at)); err != nil && !errors.Is(err, raft.ErrSnapOutOfDate) {
		return err // the process before was killed between the two
	}
	return l.Compact(at)
}

// acked is what a child was told: entries up to index are of this term, if they
// are not older than it.
type acked struct{ term, index uint64 }

// TestKilledProcessLosesNothing kills a process that writes, again and again,
// with SIGKILL. Whatever it was told is durable, is there.
func TestKilledProcessLosesNothing(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	dir := filepath.Join(t.TempDir(), "log")
	r := rand.New(rand.NewPCG(1, 5))
	total, torn := 0, 0
	for round := range rounds {
		lines, last := killOne(t, dir, 1+r.IntN(60))
		total += lines
		l := mustOpen(t, killConfig(dir))
		if err := l.holds(last); err != nil {
			t.Fatalf("round %d, after %+v: %v", round, last, err)
		}
		if l.Recovered().Torn != nil {
			torn++
		}
		must(t, l.Close())
	}
	t.Logf("%d rounds, %d acknowledged updates, %d torn tails", rounds, total, torn)
}

// killOne starts a child, kills it after so many lines, and returns how many
// there were and the last.
func killOne(t *testing.T, dir string, lines int) (n int, last acked) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return n, last // what it wrote before it died counts as well
		}
		must(t, err)
		if strings.HasPrefix(line, "error:") {
			t.Fatal(line)
		}
		var size int
		if _, err := fmt.Sscanf(line, "durable %d %d %d", &last.term, &last.index, &size); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if n++; n == lines {
			must(t, cmd.Process.Kill())
		}
	}
}

// holds checks that the log goes at least as far as last, and that every entry
// is what its term and index say.
func (l *Log) holds(last acked) error {
	if got := l.mu.view.hard.term; got < last.term {
		return fmt.Errorf("term %d", got)
	}
	// What the child has compacted was durable, too.
	if term, err := l.Term(last.index); (term != last.term || err != nil) && last.index > l.mu.view.base.index {
		return fmt.Errorf("Term(%d) = %d, %w", last.index, term, err)
	}
	first, end := l.mu.view.base.index+1, l.mu.view.last()+1
	got, err := l.Entries(first, end, noLimit)
	if err != nil || uint64(len(got)) != end-first {
		return fmt.Errorf("%d entries of [%d, %d), %w", len(got), first, end, err)
	}
	for i, e := range got {
		if want := entry(e.GetTerm(), first+uint64(i), len(e.GetData())); !protoEqual(e, want) {
			return fmt.Errorf("entry %d is not what was written", want.GetIndex())
		}
	}
	return nil
}
