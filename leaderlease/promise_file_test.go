package leaderlease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

func promiseFileIn(t *testing.T) PromiseFile {
	t.Helper()
	return PromiseFile(filepath.Join(t.TempDir(), "promise"))
}

func (f PromiseFile) wants(t *testing.T, want time.Duration) {
	t.Helper()
	if got, err := f.LoadMaxPromise(); got != want || err != nil {
		t.Fatalf("LoadMaxPromise() = %v, %v, want %v", got, err, want)
	}
}

func TestPromiseFileKeepsTheLast(t *testing.T) {
	f := promiseFileIn(t)
	f.wants(t, 0)
	for _, d := range []time.Duration{900 * ms, 1, 2*time.Second + 1, time.Second} {
		if err := f.SaveMaxPromise(d); err != nil {
			t.Fatal(err)
		}
		f.wants(t, d)
	}
}

// A restart with a shorter promise holds for the one that its file remembers.
func TestNewHoldsForThePromiseFile(t *testing.T) {
	f := promiseFileIn(t)
	if err := f.SaveMaxPromise(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	p := newPuppet(t, func(c *Config) {
		c.Promises = f
		s := bootstrapped(t, 1, 2, 3)
		if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
			t.Fatal(err)
		}
		c.Raft.Storage = s
	})
	if got := p.Info().Promise.Hold; got != 5*time.Second {
		t.Errorf("Info().Promise.Hold = %v, want 5s", got)
	}
	p.want(core.RestartHold)
}

// dying runs the steps before last, and fails in last, with or without its effect.
type dying struct {
	at, last int
	late     bool
	done     []string
}

var errDied = errors.New("died on purpose")

func (d *dying) step(name string, do func() error) error {
	d.at++
	if d.at > d.last || (d.at == d.last && !d.late) {
		return errDied
	}
	d.done = append(d.done, name)
	if err := do(); err != nil || d.at < d.last {
		return err
	}
	return errDied
}

func (d *dying) write(name, text string) error {
	if d.at+1 == d.last && !d.late {
		_ = disk{}.write(name, text[:1]) // torn
	}
	return d.step("write", func() error { return disk{}.write(name, text) })
}

func (d *dying) rename(from, to string) error {
	return d.step("rename", func() error { return disk{}.rename(from, to) })
}

func (d *dying) syncDir(dir string) error {
	return d.step("sync", func() error { return disk{}.syncDir(dir) })
}

// Whenever it dies, the old promise or the new one is there, and the next save works.
func TestPromiseFileSurvivesACrash(t *testing.T) {
	for last := 1; last <= 3; last++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("step=%d/late=%v", last, late), func(t *testing.T) {
				f := promiseFileIn(t)
				if err := f.SaveMaxPromise(time.Second); err != nil {
					t.Fatal(err)
				}
				d := &dying{last: last, late: late}
				if err := f.replace(d, "2s\n"); !errors.Is(err, errDied) {
					t.Fatalf("replace() = %v, want %v", err, errDied)
				}
				want := time.Second
				if slices.Contains(d.done, "rename") {
					want *= 2
				}
				f.wants(t, want)
				if err := f.SaveMaxPromise(3 * time.Second); err != nil {
					t.Fatal(err)
				}
				f.wants(t, 3*time.Second)
			})
		}
	}
}

// The order is what makes it durable: the text before its name, the name before New.
func TestPromiseFileOrder(t *testing.T) {
	d := &dying{last: 9}
	if err := promiseFileIn(t).replace(d, "2s\n"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"write", "rename", "sync"}; !slices.Equal(d.done, want) {
		t.Errorf("replace() did %v, want %v", d.done, want)
	}
}

func TestPromiseFileThatCannotBeUsed(t *testing.T) {
	for _, text := range []string{"", "\n", "900ms", "9", "0s\n", "-1s\n", "900ms\n\n", "\x00\x00\x00"} {
		f := promiseFileIn(t)
		if err := os.WriteFile(string(f), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := f.LoadMaxPromise()
		if err == nil || !strings.Contains(err.Error(), string(f)) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("LoadMaxPromise() of %q = %v, want an error with the file's name and the way out", text, err)
		}
		if err := f.SaveMaxPromise(time.Hour); err == nil {
			t.Errorf("SaveMaxPromise() over %q = nil, want an error: what it held is not known", text)
		}
		if err := f.Retire(t.Context()); err == nil {
			t.Errorf("Retire() of %q = nil, want an error", text)
		}
	}
	f := PromiseFile(filepath.Join(t.TempDir(), "missing", "promise"))
	if err := f.SaveMaxPromise(time.Second); err == nil {
		t.Error("SaveMaxPromise() in a directory that does not exist = nil, want an error")
	}
	if _, err := PromiseFile(t.TempDir()).LoadMaxPromise(); err == nil {
		t.Error("LoadMaxPromise() of a directory = nil, want an error")
	}
}

// Turning the lease off takes as long as the longest promise, and no longer.
func TestRetireWaitsForThePromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := promiseFileIn(t)
		if err := f.SaveMaxPromise(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second-1)
		defer cancel()
		if err := f.Retire(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Retire() = %v, want the end of its context", err)
		}
		f.wants(t, 5*time.Second)
		for _, want := range []time.Duration{5 * time.Second, 0} {
			began := time.Now()
			if err := f.Retire(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got != want {
				t.Errorf("Retire() took %v, want %v", got, want)
			}
			f.wants(t, 0)
		}
	})
}

// A process that ended before the new name was durable, or whose sync failed, leaves
// the new text to be read: by the time New makes promises, it must be on disk.
func TestWhatIsReadIsMadeDurable(t *testing.T) {
	f := promiseFileIn(t)
	if err := f.replace(&dying{last: 3}, "2s\n"); !errors.Is(err, errDied) {
		t.Fatalf("replace() = %v, want %v", err, errDied)
	}
	f.wants(t, 2*time.Second)
	d := &dying{last: 9}
	if err := f.save(d, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if want := []string{"sync"}; !slices.Equal(d.done, want) {
		t.Errorf("save() did %v of what it has read, want %v", d.done, want)
	}
	f.wants(t, 2*time.Second)
}

// A name that was forgotten, in a setting, say, is no file that is not there yet: the
// member would start without waiting.
func TestPromiseFileNeedsAName(t *testing.T) {
	t.Chdir(t.TempDir())
	var f PromiseFile
	_, load := f.LoadMaxPromise()
	for name, err := range map[string]error{"LoadMaxPromise": load, "SaveMaxPromise": f.SaveMaxPromise(time.Second), "Retire": f.Retire(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "no name") {
			t.Errorf("%s() of a PromiseFile without a name = %v, want an error that says so", name, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v, want nothing", left, err)
	}
}
