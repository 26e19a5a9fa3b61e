package sim

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

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
