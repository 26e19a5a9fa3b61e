package restore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
	"github.com/leaderlease/go/raftwal"
)

// memberDir is the data directory of a member that does not run. Nothing in it is
// changed, and no member can start with it before it is closed.
type memberDir struct {
	dir  memberdir.Dir
	id   memberdir.Identity
	lock io.Closer
	log  *raftwal.Log

	// base is the file with the state that the log goes on from, and at which one that
	// is: of index 0 if there was no checkpoint yet.
	base string
	at   store.Checkpoint
	hard *raftpb.HardState
	last uint64 // where the log ends
	// received is the index of the state if that takes the place of the log, else 0.
	received uint64
}

// openMemberDir refuses a directory that a process runs with, and one whose state and
// log do not fit together.
func openMemberDir(path string) (_ *memberDir, err error) {
	d := &memberDir{dir: memberdir.Dir(path)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("data directory %s: %w", path, err), d.Close())
		}
	}()
	if err := d.readIdentity(); err != nil {
		return nil, err
	}
	if d.lock, err = d.dir.Hold(); err != nil {
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

func (d *memberDir) readIdentity() (err error) {
	d.id, err = d.dir.Read()
	if errors.Is(err, os.ErrNotExist) {
		return explainDir(d.dir)
	}
	return err
}

func (d *memberDir) openLog() (err error) {
	dir := d.dir.Log()
	if d.log, err = raftwal.OpenReadOnly(raftwal.Config{Dir: dir}); err != nil {
		return fmt.Errorf("open the log in %s: %w", dir, err)
	}
	if d.hard, _, err = d.log.InitialState(); err != nil {
		return err
	}
	// Before anything else is written it is noted that the log has begun, and in the log
	// a term comes first.
	if d.last, err = d.log.LastIndex(); err == nil && d.id.Started && d.last == 0 && raft.IsEmptyHardState(d.hard) {
		return errors.New("its log is empty, but the member has run before: it is lost")
	}
	return err
}

// findBase chooses the state that the log goes on from: the last checkpoint, or a newer
// snapshot that another member has sent, and that a crash kept from taking its place.
func (d *memberDir) findBase() error {
	first, err := d.log.FirstIndex()
	if err != nil {
		return err
	}
	d.base = d.dir.Path(memberdir.StateFile)
	d.at, err = boltdb.ReadCheckpoint(d.base)
	if err != nil && !errors.Is(err, store.ErrNoCheckpoint) {
		return explainForeign(err)
	}
	// Of a log that was cut off nobody knows what it has lost behind a received snapshot.
	if d.at.Index+1 >= first {
		if err := d.fits(); err != nil {
			return err
		}
	}
	if err := d.findReceived(); err != nil {
		return err
	}
	switch {
	case d.at.Index == 0 && d.last == 0:
		return errors.New("its log is empty: there is nothing to restore")
	case d.at.Index+1 < first:
		return fmt.Errorf("the state in %s is of index %d, and the log begins at %d: what is between them is missing", d.base, d.at.Index, first)
	case d.supersedes():
		d.received, d.last = d.at.Index, d.at.Index
		return nil
	default:
		return d.fits()
	}
}

// fits refuses a state that the log cannot go on from.
func (d *memberDir) fits() error {
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

// findReceived takes the newest snapshot that another member has sent, if the last
// checkpoint is older. It is durable and checked before it has that name (received.save).
func (d *memberDir) findReceived() error {
	snaps := d.dir.Snaps()
	entries, err := os.ReadDir(snaps)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	newest := d.at.Index
	for _, e := range entries {
		if index, ok := memberdir.SnapIndex(e.Name()); ok {
			newest = max(newest, index)
		}
	}
	if newest == d.at.Index {
		return nil
	}
	path := filepath.Join(snaps, memberdir.SnapName(newest))
	at, err := boltdb.ReadCheckpoint(path)
	if err == nil && at.Index != newest {
		err = fmt.Errorf("it is of index %d", at.Index)
	}
	if err != nil {
		return fmt.Errorf("another member has sent %s, which is newer than the state of index %d in %s, and cannot be restored; "+
			"move it away to restore without it, which may lack what was acknowledged: %w", path, d.at.Index, memberdir.StateFile, err)
	}
	d.base, d.at = path, at
	return nil
}

// supersedes reports whether the state takes the place of the whole log, as raft has it:
// it was received, so it is committed, and the log ends before it, or has another entry
// at its index, which then was not. A log that knows that one to be committed is of
// another directory.
func (d *memberDir) supersedes() bool {
	if d.base == d.dir.Path(memberdir.StateFile) || d.at.Index <= d.hard.GetCommit() {
		return false
	}
	term, err := d.log.Term(d.at.Index)
	return d.at.Index > d.last || err == nil && term != d.at.Term
}
