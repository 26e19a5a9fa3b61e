package leaderlease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// PromiseFile is a PromiseStore in a file. Its value is the name of the file. It is for logs that are no PromiseStore.
// Put it beside the node's log. A member that is restored without its log has forgotten its promises. With its
// log but no file it holds for MaxPromise.
//
// The file is replaced as a whole, so a crash leaves the old one or the new one. On Windows a power failure may bring
// the old one back after SaveLongestPromise has returned.
type PromiseFile string

var _ PromiseStore = PromiseFile("")

// LoadLongestPromise returns the saved duration, or 0 if the file does not exist. If the file cannot be read, the node
// must stay down for the longest promise that it may ever have made. Then the file can be removed.
func (f PromiseFile) LoadLongestPromise() (time.Duration, error) {
	if f == "" {
		return 0, errors.New("leaderlease: the PromiseFile has no name")
	}
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	line, whole := strings.CutSuffix(string(text), "\n")
	d, err := time.ParseDuration(line)
	if err != nil || !whole || d <= 0 {
		return 0, fmt.Errorf("leaderlease: promise file %s: content %q is not a positive duration and a newline: stay down for the longest MaxPromise ever configured, then remove the file", string(f), text)
	}
	return d, nil
}

// SaveLongestPromise returns once d is durable. It syncs the directory even if the file holds d, since an earlier
// process may have ended between the rename and the sync.
func (f PromiseFile) SaveLongestPromise(d time.Duration) error { return f.save(disk{}, d) }

func (f PromiseFile) save(on steps, d time.Duration) error {
	saved, err := f.LoadLongestPromise()
	if err != nil {
		return err
	}
	if saved == d {
		return on.syncDir(filepath.Dir(string(f)))
	}
	return f.replace(on, d.String()+"\n")
}

// Retire is for a member that has run with a Lease and will run without one. Call it before the member takes part. It
// waits until all promises of earlier processes have ended, and then removes the file. Without a file it returns at
// once. If ctx ends first the file stays, and the member must not start.
func (f PromiseFile) Retire(ctx context.Context) error {
	longest, err := f.LoadLongestPromise()
	if err != nil || longest == 0 {
		return err
	}
	t := time.NewTimer(longest)
	defer t.Stop()
	select {
	case <-t.C:
		return os.Remove(string(f))
	case <-ctx.Done():
		return fmt.Errorf("leaderlease: wait %v for the promises in %s to end: %w", longest, string(f), ctx.Err())
	}
}

// replace writes a new file beside the old one, syncs it, and renames it over the old one.
func (f PromiseFile) replace(on steps, text string) error {
	next := string(f) + ".new"
	if err := on.write(next, text); err != nil {
		return err
	}
	if err := on.rename(next, string(f)); err != nil {
		return err
	}
	return on.syncDir(filepath.Dir(string(f)))
}

// steps are the operations between which a crash is possible. Tests replace them.
type steps interface {
	// write returns once the file with this text is durable.
	write(name, text string) error
	rename(from, to string) error
	syncDir(dir string) error
}

// disk implements steps with the operating system.
type disk struct{}

func (disk) write(name, text string) error {
	w, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := w.WriteString(text); err != nil {
		return errors.Join(err, w.Close())
	}
	return errors.Join(w.Sync(), w.Close())
}

func (disk) rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes a rename durable. Windows has no such call: there a power failure may undo the rename, since os.Rename
// does not ask for MOVEFILE_WRITE_THROUGH.
func (disk) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// saving is the state of the goroutine that saves the longest promise.
type saving struct {
	underWay bool
	failed   bool // the newest save has failed
}

// saveLocked begins to save the longest promise if storage must hold another duration. No call waits for the disk:
// a probe that asks for a longer promise is refused meanwhile, and the leader's next heartbeat has another probe.
func (l *Lease) saveLocked(now core.Instant) {
	s := &l.mu.saving
	if s.underWay || l.mu.closed {
		return
	}
	d, ok := l.mu.guard.BeginSave(now)
	if !ok {
		return
	}
	s.underWay = true
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindSaving, At: now, Duration: d})
	if s, ok := l.cfg.Promises.(hook.Saver); ok {
		s.Run(func() { l.save(d) })
		return
	}
	l.saves.Go(func() { l.save(d) })
}

// save runs without the lock, since it waits for the disk.
func (l *Lease) save(d time.Duration) {
	err := l.cfg.Promises.SaveLongestPromise(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.mu.saving
	if err != nil && !s.failed {
		l.logLocked(slog.LevelError, "could not save the longest promise", "duration", d, "error", err)
	}
	s.underWay, s.failed = false, err != nil
	l.traceLocked(leasetrace.Event{Kind: leasetrace.KindSaved, Duration: d, OK: err == nil})
	if err == nil {
		l.mu.guard.Saved(d)
	}
}
