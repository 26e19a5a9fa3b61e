package kvnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
	"github.com/leaderlease/go/raftwal"
	walfs "github.com/leaderlease/go/raftwal/fs"
)

// memberDir is the data directory of a member that does not run. Nothing in it is
// changed, and no member can start with it before it is closed.
type memberDir struct {
	path string
	id   identity
	lock io.Closer
	log  *raftwal.Log

	// base is the file with the state that the log goes on from, and at which one that
	// is: of index 0 if there was no checkpoint yet.
	base string
	at   store.Checkpoint
	hard *raftpb.HardState
	last uint64 // where the log ends
}

// openMemberDir refuses a directory that a process runs with, and one whose state and
// log do not fit together.
func openMemberDir(path string) (_ *memberDir, err error) {
	d := &memberDir{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("data directory %s: %w", path, err), d.Close())
		}
	}()
	if err := d.readIdentity(); err != nil {
		return nil, err
	}
	cfg := &Config{DataDir: path}
	if d.lock, err = walfs.Hold(filepath.Join(path, lockFile)); err != nil {
		return nil, cfg.inUse(err)
	}
	// A former version locks the log alone.
	if err := cfg.inUse(raftwal.CheckLock(filepath.Join(path, walDir))); err != nil {
		return nil, err
	}
	if err := d.openLog(); err != nil {
		return nil, err
	}
	err = d.findBase()
	return d, err
}

func (d *memberDir) Close() error {
	var errs []error
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

func (d *memberDir) readIdentity() error {
	data, err := os.ReadFile(filepath.Join(d.path, identityFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: it holds no %s, so it is no data directory of kvnode's, or not a whole one", ErrSnapshotForeign, identityFile)
	case err != nil:
		return err
	}
	if err := json.Unmarshal(data, &d.id); err != nil {
		return fmt.Errorf("%s is damaged: %w", identityFile, err)
	}
	if d.id.Format != identityFormat {
		return fmt.Errorf("%s has format %d, this version reads %d: restore with the version that wrote it", identityFile, d.id.Format, identityFormat)
	}
	return nil
}

func (d *memberDir) openLog() (err error) {
	dir := filepath.Join(d.path, walDir)
	if d.log, err = raftwal.OpenReadOnly(raftwal.Config{Dir: dir}); err != nil {
		return fmt.Errorf("open the log in %s: %w", dir, err)
	}
	if d.hard, _, err = d.log.InitialState(); err != nil {
		return err
	}
	if d.last, err = d.log.LastIndex(); err == nil && d.last == 0 {
		return errors.New("its log is empty: there is nothing to restore")
	}
	return err
}

// findBase chooses the state that the log goes on from: the last checkpoint, or a
// snapshot that another member has sent, and that a crash kept from taking its place.
func (d *memberDir) findBase() error {
	first, err := d.log.FirstIndex()
	if err != nil {
		return err
	}
	d.base = filepath.Join(d.path, storeFile)
	d.at, err = boltdb.ReadCheckpoint(d.base)
	if err != nil && !errors.Is(err, store.ErrNoCheckpoint) {
		return explainForeign(err)
	}
	if d.at.Index+1 < first {
		behind := d.at.Index
		d.base = filepath.Join(d.path, "snap", fmt.Sprintf("%016x.snap", first-1))
		if d.at, err = boltdb.ReadCheckpoint(d.base); err != nil {
			return fmt.Errorf("%s is of index %d, and the log begins at %d: what is between them is missing (%w)", storeFile, behind, first, err)
		}
	}
	if d.at.Index > d.last {
		return fmt.Errorf("the state in %s is of index %d, and the log ends at %d: it is cut off, or of another directory", d.base, d.at.Index, d.last)
	}
	term, err := d.log.Term(d.at.Index)
	if err != nil {
		return fmt.Errorf("the log at index %d, of which the state in %s is: %w", d.at.Index, d.base, err)
	}
	if term != d.at.Term {
		return fmt.Errorf("the state in %s is of index %d in term %d, and the log has that index in term %d: one of the two is of another directory",
			d.base, d.at.Index, d.at.Term, term)
	}
	return nil
}
