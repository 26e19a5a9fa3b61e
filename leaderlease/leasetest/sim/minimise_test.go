package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRegressions replays every kept schedule. A schedule that breaks an assumption must find the
// violation that it names, and none with the assumption kept.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %v, %v, want schedules", files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := readSchedule(t, path)
			if want := s.Expect; want != "" {
				r := Run(t, Config{Schedule: s})
				if r.Violation == nil || r.Violation.Oracle != want {
					t.Errorf("with the assumption broken: %s, want a violation of %s", r.Line(), want)
				}
				s = readSchedule(t, path)
				s.Swarm.keepAssumptions()
			}
			Run(t, Config{Schedule: s}).Require(t)
		})
	}
}

func readSchedule(t *testing.T, path string) *Schedule {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := ParseSchedule(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
}

// TestMinimise takes a run that fails because the margin was removed, and wants
// a few faults and a time line in return.
func TestMinimise(t *testing.T) {
	skipShort(t)
	cfg := Config{Amend: controls["margin"]}
	r := firstViolation(t, cfg, 200)
	small := Minimise(t, cfg, r, 300)
	if small.Violation == nil || small.Violation.Oracle != r.Violation.Oracle {
		t.Fatalf("Minimise() = %s, want what %s found", small.Line(), r.Line())
	}
	if got, from := len(small.Schedule.Faults), len(r.Schedule.Faults); got > max(5, from/10) {
		t.Errorf("Minimise() left %d of %d faults, want at most 5 or a tenth", got, from)
	}
	var text strings.Builder
	if _, err := small.Schedule.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	again, err := ParseSchedule(strings.NewReader(text.String()))
	if err != nil {
		t.Fatalf("ParseSchedule() of\n%s\n%v", &text, err)
	}
	replayed := Run(t, Config{Schedule: again})
	if replayed.Hash != small.Hash {
		t.Errorf("replayed from text: %s, hash %x, want %s, hash %x", replayed.Line(), replayed.Hash, small.Line(), small.Hash)
	}
	t.Logf("%s\nminimised to:\n%s\ntime line:\n%s", r.Line(), &text, small.Timeline(20*time.Second))
}

// firstViolation returns the first seed's result with a violation.
func firstViolation(t *testing.T, cfg Config, seeds uint64) *Result {
	t.Helper()
	for seed := uint64(1); seed <= seeds; seed++ {
		cfg.Seed = seed
		if r := Run(t, cfg); r.Violation != nil {
			t.Logf("after %d seeds: %s", seed, r.Line())
			return r
		}
	}
	t.Fatalf("no violation in %d seeds", seeds)
	return nil
}
