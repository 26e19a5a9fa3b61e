package leaderlease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
)

func promiseFileIn(t *testing.T) PromiseFile {
	t.Helper()
	return PromiseFile(filepath.Join(t.TempDir(), "promise"))
}

func (f PromiseFile) wants(t *testing.T, want time.Duration) {
	t.Helper()
	if got, err := f.LoadLongestPromise(); got != want || err != nil {
		t.Fatalf("LoadLongestPromise() = %v, %v, want %v", got, err, want)
	}
}

func TestPromiseFileKeepsTheLast(t *testing.T) {
	f := promiseFileIn(t)
	f.wants(t, 0)
	for _, d := range []time.Duration{900 * ms, 1, 2*time.Second + 1, time.Second} {
		if err := f.SaveLongestPromise(d); err != nil {
			t.Fatal(err)
		}
		f.wants(t, d)
	}
}

// A restart with a shorter promise holds for the promise in its file.
func TestNewHoldsForThePromiseFile(t *testing.T) {
	f := promiseFileIn(t)
	if err := f.SaveLongestPromise(5 * time.Second); err != nil {
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
				if err := f.SaveLongestPromise(time.Second); err != nil {
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
				if err := f.SaveLongestPromise(3 * time.Second); err != nil {
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
		_, err := f.LoadLongestPromise()
		if err == nil || !strings.Contains(err.Error(), string(f)) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("LoadLongestPromise() of %q = %v, want an error with the file's name and the way out", text, err)
		}
		if err := f.SaveLongestPromise(time.Hour); err == nil {
			t.Errorf("SaveLongestPromise() over %q = nil, want an error: what it held is not known", text)
		}
		if err := f.Retire(t.Context()); err == nil {
			t.Errorf("Retire() of %q = nil, want an error", text)
		}
	}
	f := PromiseFile(filepath.Join(t.TempDir(), "missing", "promise"))
	if err := f.SaveLongestPromise(time.Second); err == nil {
		t.Error("SaveLongestPromise() in a directory that does not exist = nil, want an error")
	}
	if _, err := PromiseFile(t.TempDir()).LoadLongestPromise(); err == nil {
		t.Error("LoadLongestPromise() of a directory = nil, want an error")
	}
}

// Turning the lease off takes as long as the longest promise, and no longer.
func TestRetireWaitsForThePromises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := promiseFileIn(t)
		if err := f.SaveLongestPromise(5 * time.Second); err != nil {
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

// A process that ended before the new name was durable, or after a failed sync, leaves
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
	_, load := f.LoadLongestPromise()
	for name, err := range map[string]error{"LoadLongestPromise": load, "SaveLongestPromise": f.SaveLongestPromise(time.Second), "Retire": f.Retire(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "no name") {
			t.Errorf("%s() of a PromiseFile without a name = %v, want an error that says so", name, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v, want nothing", left, err)
	}
}

// slowFile is a PromiseStore with a disk that answers when the test allows it.
type slowFile struct {
	promiseFile
	begun  []time.Duration
	answer chan error
}

func (f *slowFile) SaveLongestPromise(d time.Duration) error {
	f.begun = append(f.begun, d)
	if f.answer == nil {
		return nil
	}
	return <-f.answer
}

// saver is a follower of node 2 with a Duration of 300 ms, that may promise up to 900 ms.
func saver(tb testing.TB, file PromiseStore, amend ...func(*Config)) *puppet {
	tb.Helper()
	p := newPuppet(tb, append([]func(*Config){func(c *Config) {
		c.Duration, c.MaxPromise, c.Promises = 300*ms, 900*ms, file
	}}, amend...)...)
	p.follow(2, 2)
	return p
}

// asked2 is a heartbeat of node 2 that asks for d, and reports whether it was promised.
func (p *puppet) asked2(d time.Duration) bool {
	p.t.Helper()
	m := p.message(raftpb.MsgHeartbeat, 2, 1)
	attachProbe(m, core.Probe{Sent: p.clock.Now(), Duration: d})
	before := p.Stats()
	p.Incoming(m)
	after := p.Stats()
	if after.Promises+after.RefusedProbes != before.Promises+before.RefusedProbes+1 {
		p.t.Fatalf("a probe is neither promised nor refused: %+v", after)
	}
	return after.Promises > before.Promises
}

// No call waits for the disk or for the lock: the probe is refused, and one that comes
// when the longer promise is durable is not.
func TestALongerPromiseIsSavedByTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowFile{}
		p := saver(t, f)
		f.answer = make(chan error)
		for range 3 {
			if p.asked2(900 * ms) {
				t.Fatal("a promise is made that a restart would not hold for")
			}
			synctest.Wait()
			p.Tick()
		}
		if len(f.begun) != 2 || f.begun[1] != 900*ms {
			t.Fatalf("saved %v, want 300ms at the start and 900ms once", f.begun)
		}
		if !p.asked2(300 * ms) {
			t.Error("a short promise is refused while a longer one is saved")
		}
		f.answer <- nil
		synctest.Wait()
		if !p.asked2(900*ms) || p.Info().Promise.Saved != 900*ms {
			t.Errorf("a promise that is saved is refused: %+v", p.Info().Promise)
		}
		p.Close()
	})
}

// A process that loads a longer duration holds for it. The first tick after the hold saves a
// shorter one, and longer promises are refused from then on, before the disk answers.
func TestWhatIsSavedFallsAtATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowFile{promiseFile: promiseFile{kept: 900 * ms}}
		p := saver(t, f, func(c *Config) { c.Raft.Storage = past(t, false, true) })
		f.answer = make(chan error)
		p.clock.Advance(900*ms - 1)
		p.Tick()
		synctest.Wait()
		if len(f.begun) != 1 {
			t.Fatalf("saved %v, too early", f.begun)
		}
		p.clock.Advance(1)
		p.Tick()
		if p.asked2(900 * ms) {
			t.Error("a longer promise is made while a shorter one is saved")
		}
		synctest.Wait()
		if len(f.begun) != 2 || f.begun[1] != 300*ms {
			t.Fatalf("saved %v, want 900ms and 300ms", f.begun)
		}
		f.answer <- nil
		synctest.Wait()
		if got := p.Info().Promise.Saved; got != 300*ms {
			t.Errorf("Info().Promise.Saved = %v, want 300ms", got)
		}
		p.Close()
	})
}

// An error changes nothing, is said once in a row, and the next probe tries again.
func TestASaveThatFailsIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := &slowFile{}
		p := saver(t, f, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		f.answer = make(chan error, 1)
		for range 3 {
			f.answer <- errors.New("broken on purpose")
			if p.asked2(900 * ms) {
				t.Fatal("a promise is made that was not saved")
			}
			synctest.Wait()
		}
		if got := strings.Count(log.String(), "could not save"); got != 1 || len(f.begun) != 4 {
			t.Errorf("%d lines about %d saves, want 1 about 3 and the first:\n%s", got, len(f.begun), &log)
		}
		f.answer <- nil
		p.asked2(900 * ms)
		synctest.Wait()
		if !p.asked2(900 * ms) {
			t.Error("a promise that is saved at last is refused")
		}
		p.Close()
	})
}

// Close waits for the disk, and lets no other save begin.
func TestCloseWaitsForASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowFile{}
		p := saver(t, f)
		f.answer = make(chan error)
		p.asked2(800 * ms)
		closed := false
		go func() { p.Close(); closed = true }()
		synctest.Wait()
		if closed {
			t.Error("Close() returned while Promises was saving")
		}
		f.answer <- nil
		synctest.Wait()
		if !closed {
			t.Error("Close() waits for nothing")
		}
		p.asked2(900 * ms)
		synctest.Wait()
		if len(f.begun) != 2 {
			t.Errorf("saved %v after Close()", f.begun)
		}
	})
}

// saverFile runs saves itself, as a simulator does.
type saverFile struct {
	*slowFile
	runs *[]hook.Save
}

func (f saverFile) Run(save hook.Save) { *f.runs = append(*f.runs, save) }

// A PromiseStore of the simulators runs the save itself.
func TestASaverRunsTheSave(t *testing.T) {
	f := &slowFile{}
	var runs []hook.Save
	p := saver(t, f, func(c *Config) { c.Promises = saverFile{f, &runs} })
	p.asked2(900 * ms)
	p.Close()
	if len(runs) != 1 || len(f.begun) != 1 {
		t.Fatalf("Run was called %d times, and %v saved, want one call and 300ms", len(runs), f.begun)
	}
	runs[0]()
	if !p.asked2(900 * ms) {
		t.Error("a promise that is saved is refused")
	}
}

// pooledFile is a PromiseStore of an embedder with a method Run that has nothing to do with saves.
type pooledFile struct{ *slowFile }

func (pooledFile) Run(job func()) { job() }

func TestAStoreOfAnEmbedderRunsNoSave(t *testing.T) {
	if _, runs := PromiseStore(pooledFile{}).(hook.Saver); runs {
		t.Error("a PromiseStore of an embedder is taken for one of the simulators")
	}
}

// A restart holds for what was saved, be it more or less than MaxPromise, and for
// MaxPromise if nothing was.
func TestTheHoldIsWhatWasSaved(t *testing.T) {
	for _, tc := range []struct{ kept, want time.Duration }{
		{0, 900 * ms}, {200 * ms, 300 * ms}, {300 * ms, 300 * ms}, {301 * ms, 301 * ms}, {5 * time.Second, 5 * time.Second},
	} {
		f := &promiseFile{kept: tc.kept}
		p := saver(t, f, func(c *Config) {
			s := bootstrapped(t, 1, 2, 3)
			c.Raft.Storage = s
			if err := s.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}); err != nil {
				t.Fatal(err)
			}
		})
		if hold := p.Info().Promise.Hold; hold != tc.want || f.kept != tc.want {
			t.Errorf("kept %v: Info().Promise.Hold = %v, and %v is saved, want %v", tc.kept, hold, f.kept, tc.want)
		}
		p.Close()
	}
}
