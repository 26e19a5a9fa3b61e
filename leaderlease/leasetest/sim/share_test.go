package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// share is a range of seeds that one process simulates.
type share struct {
	First uint64
	Seeds int
}

// shareSeeds is the size of a share, less where that would leave a process idle.
const shareSeeds = 25

// tally is the result of one or more shares.
type tally struct {
	Share share
	// Ran is how many seeds ran: fewer than the share has after violations.
	Ran        int
	Violations []string
	Sum        Result
}

func (s *tally) add(o *tally) {
	s.Ran += o.Ran
	s.Violations = append(s.Violations, o.Violations...)
	s.Sum.Add(&o.Sum)
}

// tallyMark begins the line by which a process hands its tally on.
const tallyMark = "tally "

func (s *tally) print(w io.Writer) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", tallyMark, line)
	return err
}

// readTallies returns the tallies in r by their shares. It skips an unfinished line, so that
// its share is simulated again.
func readTallies(r io.Reader) (map[share]*tally, error) {
	found := make(map[share]*tally)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		one := &tally{}
		if line, ok := bytes.CutPrefix(lines.Bytes(), []byte(tallyMark)); ok && json.Unmarshal(line, one) == nil {
			found[one.Share] = one
		}
	}
	return found, lines.Err()
}

// dealer deals seeds out to processes, since raft's randomness is pinned for a
// whole process, and adds up what they have found.
type dealer struct {
	first uint64
	goal  goal
	size  int // of a share
	run   func(share) (*tally, error)

	kept map[share]*tally
	keep io.Writer // what is found is kept here as well
	logf func(format string, args ...any)

	mu struct {
		sync.Mutex
		next uint64 // seed
		sum  tally
		errs []error
		said time.Time
	}
}

// deal lets procs processes work until there is enough, and returns the sum.
func (d *dealer) deal(procs int) (*tally, []error) {
	d.mu.next, d.mu.said = d.first, time.Now()
	var all sync.WaitGroup
	for range procs {
		all.Go(func() {
			for s, ok := d.next(); ok; s, ok = d.next() {
				found, err := d.run(s)
				d.count(found, err)
			}
		})
	}
	all.Wait()
	return &d.mu.sum, d.mu.errs
}

// next returns the next share to simulate. It skips the shares that are kept, and adds them
// to the sum.
func (d *dealer) next() (share, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		dealt := int(d.mu.next - d.first)
		if d.goal.reached(&d.mu.sum.Sum, dealt) || len(d.mu.sum.Violations) >= *stopAfter || len(d.mu.errs) > 0 {
			return share{}, false
		}
		s := share{First: d.mu.next, Seeds: d.size}
		if d.goal.hours == 0 {
			s.Seeds = min(s.Seeds, d.goal.seeds-dealt)
		}
		d.mu.next += uint64(s.Seeds)
		found := d.kept[s]
		if found == nil {
			return s, true
		}
		d.mu.sum.add(found)
	}
}

func (d *dealer) count(found *tally, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		err = found.print(d.keep)
	}
	if err != nil {
		d.mu.errs = append(d.mu.errs, err)
		return
	}
	d.mu.sum.add(found)
	if time.Since(d.mu.said) >= time.Minute {
		d.mu.said = time.Now()
		d.logf("so far %s", d.mu.sum.line())
	}
}

func (s *tally) line() string {
	return fmt.Sprintf("simulated %.1f h, %d lease reads, %d elections, %d events of traces judged, %d violations, %d seeds",
		s.Sum.Elapsed.Hours(), s.Sum.AllLeaseReads(), s.Sum.Elections, s.Sum.Judged, len(s.Violations), s.Ran)
}

// simulateInProcesses is TestSimulation in as many processes as -procs says.
func simulateInProcesses(t *testing.T) *tally {
	procs := cmp.Or(*processes, runtime.GOMAXPROCS(0))
	d := &dealer{first: *firstSeed, goal: flagGoal(), size: shareSeeds, run: runProcess, keep: io.Discard, logf: t.Logf}
	if d.goal.hours == 0 {
		d.size = min(d.size, (d.goal.seeds+procs-1)/procs)
	}
	if *keepIn != "" {
		d.resume(t, *keepIn, fmt.Sprint(*control, *skipGuard))
	}
	sum, errs := d.deal(procs)
	for _, err := range errs {
		t.Error(err)
	}
	for _, violation := range sum.Violations {
		t.Error(violation)
	}
	return sum
}

// resume continues from the file in dir that the same program has left. Seeds mean something
// else in another program or with other settings, which therefore have other file names.
func (d *dealer) resume(t *testing.T, dir, settings string) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	id := sha256.Sum256(append(program, settings...))
	name := filepath.Join(dir, fmt.Sprintf("sim-%x.txt", id[:6]))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if d.kept, err = readTallies(f); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	// What follows a line that was not finished begins a new one.
	if _, err := fmt.Fprintln(f); err != nil {
		t.Fatal(err)
	}
	d.keep = f
	t.Logf("%s keeps %d shares of seeds", name, len(d.kept))
}

var errNoTally = errors.New("the process has printed no tally, or no violation in it")

// runProcess has this program simulate a share in a process of its own.
func runProcess(s share) (*tally, error) {
	cmd := exec.Command(os.Args[0], append(slices.Clone(os.Args[1:]),
		"-procs=1", "-hours=0", "-tally", fmt.Sprintf("-first=%d", s.First), fmt.Sprintf("-seeds=%d", s.Seeds))...)
	out, failed := cmd.CombinedOutput()
	found, err := readTallies(bytes.NewReader(out))
	one := found[s]
	// A process that found violations fails, and says so itself.
	if err != nil || one == nil || (failed != nil) != (len(one.Violations) > 0) {
		return nil, fmt.Errorf("the process of seeds %d to %d: %w\n%s", s.First, s.First+uint64(s.Seeds)-1, cmp.Or(failed, err, errNoTally), out)
	}
	if failed != nil {
		fmt.Printf("%s\n", out) // the time line, and where the schedule was saved
	}
	return one, nil
}
