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
	"reflect"
	"runtime"
	"slices"
	"strings"
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
		d.resume(t, *keepIn, fmt.Sprint(*control, *skipGuard, *raftOnly, *without))
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

// counted is the tally of a process that looks at nothing.
func counted(s share) *tally {
	return &tally{Share: s, Ran: s.Seeds, Sum: Result{LeaseReads: uint64(s.Seeds), Elapsed: time.Duration(s.Seeds) * time.Hour}}
}

func testDealer(t *testing.T, g goal, run func(share) (*tally, error)) *dealer {
	return &dealer{first: 101, goal: g, size: 25, run: run, keep: io.Discard, logf: t.Logf}
}

func TestEachSeedIsDealtOnce(t *testing.T) {
	var mu sync.Mutex
	times := make(map[uint64]int)
	d := testDealer(t, goal{seeds: 110}, func(s share) (*tally, error) {
		mu.Lock()
		defer mu.Unlock()
		for i := range s.Seeds {
			times[s.First+uint64(i)]++
		}
		return counted(s), nil
	})
	// The second share is there already. Those of another run, which begin or end
	// elsewhere, do not count.
	d.kept = make(map[share]*tally)
	for _, s := range []share{{126, 25}, {1, 25}, {110, 25}, {151, 10}, {201, 25}} {
		d.kept[s] = counted(s)
	}
	sum, errs := d.deal(3)
	if len(errs) > 0 || sum.Ran != 110 || sum.Sum.LeaseReads != 110 {
		t.Errorf("deal() = %d seeds, %d reads, %v, want 110 of each", sum.Ran, sum.Sum.LeaseReads, errs)
	}
	for seed := uint64(101); seed < 211; seed++ {
		want := 1
		if seed >= 126 && seed < 151 {
			want = 0
		}
		if times[seed] != want {
			t.Errorf("seed %d was simulated %d times, want %d", seed, times[seed], want)
		}
	}
	if len(times) != 85 {
		t.Errorf("%d seeds were simulated, want 85", len(times))
	}
}

func TestHoursGoOnFromWhatIsKept(t *testing.T) {
	goesOn := func(hours float64, want int, kept map[share]*tally) map[share]*tally {
		var file bytes.Buffer
		ran := 0
		d := testDealer(t, goal{hours: hours}, func(s share) (*tally, error) {
			ran += s.Seeds
			return counted(s), nil
		})
		d.keep, d.kept = &file, kept
		if sum, errs := d.deal(1); len(errs) > 0 || sum.Sum.Elapsed.Hours() < hours || ran != want {
			t.Errorf("%v h: %v simulated, %d seeds now, %v, want %d seeds", hours, sum.Sum.Elapsed, ran, errs, want)
		}
		// A process was killed while it wrote.
		file.WriteString("\n" + tallyMark + `{"Share":{"First":176,"Se`)
		found, err := readTallies(&file)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	kept := goesOn(60, 75, nil)
	goesOn(70, 0, kept)
	goesOn(80, 25, kept)
}

// A field that JSON does not carry would be 0 in the sum of several processes.
func TestTalliesArriveWhole(t *testing.T) {
	r := Run(t, Config{Seed: 3, Duration: 20 * time.Second})
	sent := &tally{Share: share{3, 1}, Ran: 1, Violations: []string{"VIOLATION"}}
	sent.Sum.Add(r)
	sent.Sum.HeldBack++ // rare
	var line bytes.Buffer
	if err := sent.print(&line); err != nil {
		t.Fatal(err)
	}
	found, err := readTallies(&line)
	if got := found[sent.Share]; err != nil || !reflect.DeepEqual(got, sent) {
		t.Errorf("readTallies(print(tally)) = %+v, %v, want %+v", got, err, sent)
	}
}

func TestProcessesThatFailEndTheRun(t *testing.T) {
	shares := 0
	died := errors.New("died")
	d := testDealer(t, goal{seeds: 1000}, func(s share) (*tally, error) {
		if shares++; shares == 3 {
			return nil, died
		}
		return counted(s), nil
	})
	if sum, errs := d.deal(1); len(errs) != 1 || !errors.Is(errs[0], died) || sum.Ran != 50 {
		t.Errorf("deal() = %d seeds, %v, want 50 and %v", sum.Ran, errs, died)
	}
	shares = 0
	d = testDealer(t, goal{seeds: 1000}, func(s share) (*tally, error) {
		shares++
		found := counted(s)
		found.Violations = []string{"one", "two"}
		return found, nil
	})
	if sum, errs := d.deal(1); len(errs) > 0 || shares != 3 || len(sum.Violations) != 6 {
		t.Errorf("deal() = %d violations of %d shares, %v, want 6 of 3", len(sum.Violations), shares, errs)
	}
}

// The same with real processes: a violation in either reaches the exit code, with
// seed and oracle, and so does the death of one.
func TestViolationsOfProcessesFailTheRun(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-procs=2 -seeds=20 -stop=1 -control=stock", "VIOLATION seed="},
		{"-procs=2 -seeds=2 -replay=testdata/none", "testdata/none"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-test.run=^TestSimulation$"}, strings.Fields(c.args)...)...)
		out, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed {
			t.Errorf("%s: %v, want an exit code", c.args, err)
		}
		if !strings.Contains(string(out), c.want) {
			t.Errorf("%s: no %q in\n%s", c.args, c.want, out)
		}
	}
}

func TestAStoppedRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	run := func(kept int, settings string) {
		t.Helper()
		d := testDealer(t, goal{seeds: 50}, func(s share) (*tally, error) { return counted(s), nil })
		d.resume(t, dir, settings)
		if sum, errs := d.deal(2); len(d.kept) != kept || sum.Ran != 50 || len(errs) > 0 {
			t.Errorf("%q: %d shares were kept, %d seeds, %v, want %d and 50", settings, len(d.kept), sum.Ran, errs, kept)
		}
	}
	run(0, "")
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v, want 1", len(files), err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	// It was killed while it wrote.
	if err := os.Truncate(files[0], int64(len(whole)-10)); err != nil {
		t.Fatal(err)
	}
	run(1, "")
	run(2, "")
	run(0, "of a control")
}
