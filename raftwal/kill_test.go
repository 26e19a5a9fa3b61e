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
)

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
