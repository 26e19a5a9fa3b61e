package leaderlease

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// files is a directory as a machine has it that may lose its power: what is in memory,
// and what of it is on the disk. It stands in for the operating system under a
// PromiseFile, which reads what is in memory.
type files struct {
	dir string
	// nodes are what has been written, by number; names and kept say which one a name
	// means, in memory and on the disk, and renamed what is between the two.
	nodes   []inode
	names   map[string]int
	kept    map[string]int
	renamed []change
	// says are the promises that a start may find: the newest that was saved, and those
	// that a process has died in saving since.
	says []time.Duration

	// at is the step that the process takes next, last the one it dies in, late if so
	// with its effect.
	at, last int
	late     bool
	// syncs and syncsDir say what the real disk does.
	syncs, syncsDir bool
}

// inode is a file's text, and what a power failure may make of it.
type inode struct {
	text string
	or   []string
}

// change is a name that means something else, and one that means nothing any more: a
// rename does both or neither, as on all file systems with a journal.
type change struct {
	name string
	node int
	gone string
}

func (c change) make(names map[string]int) {
	names[c.name] = c.node
	delete(names, c.gone)
}

func (f *files) clone() *files {
	c := *f
	c.nodes, c.renamed, c.says = slices.Clone(f.nodes), slices.Clone(f.renamed), slices.Clone(f.says)
	c.names, c.kept = maps.Clone(f.names), maps.Clone(f.kept)
	return &c
}

func (f *files) key() string { return fmt.Sprint(f.nodes, f.names, f.kept, f.renamed, f.says) }

// show makes the real directory what is in memory.
func (f *files) show(t *testing.T) {
	t.Helper()
	old, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range old {
		if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for name, i := range f.names {
		if err := os.WriteFile(name, []byte(f.nodes[i].text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// step reports whether the process lives to take a step, and dies after it.
func (f *files) step() (takes, dies bool) {
	f.at++
	return f.last == 0 || f.at < f.last || (f.at == f.last && f.late), f.at == f.last
}

func (f *files) died(dies bool) error {
	if dies {
		return errDied
	}
	return nil
}

// write implements steps. A process that dies in it leaves a part of the text.
func (f *files) write(name, text string) error {
	takes, dies := f.step()
	i, there := f.names[name]
	if !there {
		i = len(f.nodes)
		f.nodes = append(f.nodes, inode{})
		f.change(change{name: name, node: i})
	}
	or := append(slices.Clone(f.nodes[i].or), f.nodes[i].text, "", text[:1], text)
	switch {
	case !takes:
		f.nodes[i] = inode{text[:1], or}
	case f.syncs:
		f.nodes[i] = inode{text: text}
	default:
		f.nodes[i] = inode{text, or}
	}
	if !takes {
		return errDied
	}
	return errors.Join(os.WriteFile(name, []byte(text), 0o600), f.died(dies))
}

func (f *files) change(c change) {
	f.renamed = append(f.renamed, c)
	c.make(f.names)
}

// rename implements steps.
func (f *files) rename(from, to string) error {
	takes, dies := f.step()
	if !takes {
		return errDied
	}
	f.change(change{to, f.names[from], from})
	return errors.Join(os.Rename(from, to), f.died(dies))
}

// syncDir implements steps.
func (f *files) syncDir(string) error {
	takes, dies := f.step()
	if !takes {
		return errDied
	}
	if f.syncsDir {
		f.renamed, f.kept = nil, maps.Clone(f.names)
	}
	return f.died(dies)
}

// fails yields what a power failure may leave: any of the names that were not synced,
// and any of the texts.
func (f *files) fails(yield func(*files)) {
	for kept := range 1 << len(f.renamed) {
		c := f.clone()
		for i, r := range f.renamed {
			if kept&(1<<i) != 0 {
				r.make(c.kept)
			}
		}
		c.renamed, c.names = nil, maps.Clone(c.kept)
		c.texts(0, yield)
	}
}

func (f *files) texts(from int, yield func(*files)) {
	i := from + slices.IndexFunc(f.nodes[from:], func(n inode) bool { return len(n.or) > 0 })
	if i < from {
		yield(f.clone())
		return
	}
	for _, text := range append(slices.Clone(f.nodes[i].or), f.nodes[i].text) {
		c := f.clone()
		c.nodes[i] = inode{text: text}
		c.texts(i+1, yield)
	}
}

// fileSearch looks at every script of saves that end well or in the midst, of crashes
// with and without the power, and of what an operator may do.
type fileSearch struct {
	t      *testing.T
	file   PromiseFile
	seen   map[string]bool
	script []string
	bad    string
	depth  int
	// states are those of level, next those of the next one.
	level, next []fileState
}

type fileState struct {
	*files
	script []string
}

const (
	short = time.Second
	long  = time.Minute + 30*time.Second
)

func TestExploreFiles(t *testing.T) {
	dir := t.TempDir()
	s := &fileSearch{t: t, file: PromiseFile(filepath.Join(dir, "promise")), seen: make(map[string]bool)}
	syncs, syncsDir := reallySyncs(t)
	s.reach(&files{dir: dir, names: map[string]int{}, kept: map[string]int{}, says: []time.Duration{0}, syncs: syncs, syncsDir: syncsDir})
	for s.depth = 1; s.depth <= searched(4); s.depth++ {
		s.level, s.next = s.next, nil
		for _, at := range s.level {
			s.script = at.script
			s.steps(at.files)
			if s.bad != "" {
				t.Fatalf("COUNTEREXAMPLE search=files depth=%d states=%d\n%s\n%s", s.depth, len(s.seen), strings.Join(s.script, "\n"), s.bad)
			}
		}
	}
	t.Logf("%d states", len(s.seen))
}

// searched is how deep a search goes, less where that takes long.
func searched(depth int) int {
	if testing.Short() {
		return depth - 2
	}
	return depth
}

// reallySyncs reports what the real disk does: a pipe takes a text, and refuses to sync.
func reallySyncs(t *testing.T) (syncs, syncsDir bool) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return true, true
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pipe := fmt.Sprintf("/proc/self/fd/%d", w.Fd())
	return errors.Is(disk{}.write(pipe, "1s"), syscall.EINVAL), errors.Is(disk{}.syncDir(pipe), syscall.EINVAL)
}

// steps takes every step from at.
func (s *fileSearch) steps(at *files) {
	before := s.script
	for _, d := range []time.Duration{short, long} {
		for last := range 4 {
			for _, late := range []bool{false, true} {
				if last > 0 || !late {
					s.save(at.clone(), d, last, late, before)
				}
			}
		}
	}
	at.fails(func(c *files) { s.step("the power fails", c, before) })
	s.operate(at)
}

// step notes where a step leads, and looks at what a start finds there.
func (s *fileSearch) step(name string, to *files, before []string) {
	if s.bad != "" {
		return
	}
	s.script = append(slices.Clip(before), name)
	s.reach(to)
}

func (s *fileSearch) reach(to *files) {
	if s.seen[to.key()] {
		return
	}
	s.seen[to.key()] = true
	to.show(s.t)
	if got, err := s.file.LoadLongestPromise(); err != nil || !slices.Contains(to.says, got) {
		s.bad = fmt.Sprintf("LoadLongestPromise() = %v, %v, want one of %v", got, err, to.says)
		return
	}
	s.next = append(s.next, fileState{to, s.script})
}

// save is a process that starts, saves d, and goes on or dies.
func (s *fileSearch) save(at *files, d time.Duration, last int, late bool, before []string) {
	if s.bad != "" {
		return
	}
	at.show(s.t)
	at.at, at.last, at.late = 0, last, late
	err := s.file.save(at, d)
	at.at, at.last, at.late = 0, 0, false
	switch {
	case err == nil:
		at.says = []time.Duration{d}
	case errors.Is(err, errDied):
		at.says = append(at.says, d)
		slices.Sort(at.says)
		at.says = slices.Compact(at.says)
	default:
		s.bad = err.Error()
		return
	}
	s.step(fmt.Sprintf("save %v, step %d, late %v: %v", d, last, late, err), at, before)
}

// operate is what an operator may do with the file that is there.
func (s *fileSearch) operate(at *files) {
	at.show(s.t)
	longest, err := s.file.LoadLongestPromise()
	if err != nil || longest == 0 || s.bad != "" {
		return
	}
	text, err := os.ReadFile(string(s.file))
	if err != nil {
		s.t.Fatal(err)
	}
	for n := range text {
		if err := os.WriteFile(string(s.file), text[:n], 0o600); err != nil {
			s.t.Fatal(err)
		}
		if got, err := s.file.LoadLongestPromise(); err == nil && got != longest {
			s.bad = fmt.Sprintf("a copy that was cut to %q counts as %v", text[:n], got)
		}
	}
	if err := PromiseFile("").Retire(s.t.Context()); err == nil {
		s.bad = "a member whose setting lacks the file's name runs without a lease at once"
	}
	at.show(s.t)
	synctest.Test(s.t, func(t *testing.T) {
		began := time.Now()
		if err := s.file.Retire(t.Context()); err != nil || time.Since(began) < longest {
			s.bad = fmt.Sprintf("a member runs without a lease %v after a promise for %v, %v", time.Since(began), longest, err)
		}
	})
}

// callers are calls that change what readers may see, each of which reads the clock
// under the lock.
var callers = []struct {
	name string
	do   func(p *puppet, grant *raftpb.Message)
}{
	{"a grant", func(p *puppet, grant *raftpb.Message) { p.Incoming(grant) }},
	{"Invalidate", func(p *puppet, _ *raftpb.Message) { p.invalidate() }},
	{"Tick", func(p *puppet, _ *raftpb.Message) { p.Tick() }},
	{"the end of the term", func(p *puppet, _ *raftpb.Message) { p.follow(3, 2) }},
	{"Close", func(p *puppet, _ *raftpb.Message) { p.Close() }},
}

// TestExplorePairs makes every two calls at once. The second stands in line for the
// lock, for so long that sync.Mutex hands it over at the next Unlock, wherever in the
// first that is. In the end readers see what the lease is.
func TestExplorePairs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, first := range callers {
		for _, second := range callers {
			c := &hookClock{}
			c.Advance(time.Hour)
			p := leading(t, func(cfg *Config) { cfg.Clock = c })
			c.Advance(100 * ms)
			grant := p.granted(p.heartbeat())
			c.Advance(ms)
			done := make(chan struct{})
			c.hook = func() {
				go func() {
					defer close(done)
					second.do(p, grant)
				}()
				p.standInLine()
			}
			first.do(p, grant)
			<-done
			if got, want := p.view.Load(), p.mu.lease.View(c.Now()); !got.same(&want, 0) {
				t.Errorf("COUNTEREXAMPLE search=pairs depth=2 states=%d\n%s, and %s meanwhile: readers see %+v of the lease %+v",
					len(callers)*len(callers), first.name, second.name, got.View, want)
			}
		}
	}
}

// standInLine lets a goroutine wait for the lock, which the caller holds, until it is the
// next to have it.
func (p *puppet) standInLine() {
	runtime.Gosched()
	for began := time.Now(); time.Since(began) < 3*ms; {
		continue // longer than sync.Mutex lets anybody wait
	}
	p.mu.Unlock()
	p.mu.Lock()
	runtime.Gosched() // it has lost the race for the lock, and will have it next
}
