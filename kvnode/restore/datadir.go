package restore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal"
)

// memberDir is a source: the data directory of a member that has stopped. Nothing in it is
// changed, and no member can start with it before Close.
type memberDir struct {
	dir  memberdir.Dir
	id   memberdir.Identity
	lock io.Closer
	log  *raftwal.Log

	// base is the file with the state from which the replay starts, and at describes it. at.Index
	// is 0 if the member had no checkpoint yet.
	base string
	at   store.Checkpoint
	hard *raftpb.HardState
	last uint64 // index of the newest entry that counts
	// received is at.Index if a received snapshot replaces the log, else 0.
	received uint64
}

// openMemberDir fails if a process runs with the directory, or if its state and its log do not
// match.
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
	switch {
	case !errors.Is(err, os.ErrNotExist):
		return err
	case isDir(d.dir.Path("member")):
		return fmt.Errorf("%w, but the data of an etcd member: %s", ErrForeign, FromEtcd)
	default:
		return fmt.Errorf("%w: it holds no %s, so it is not a kvnode data directory, or not a complete one", ErrForeign, memberdir.IdentityFile)
	}
}

func (d *memberDir) openLog() (err error) {
	dir := d.dir.Log()
	if d.log, err = raftwal.OpenReadOnly(raftwal.Config{Dir: dir}); err != nil {
		return fmt.Errorf("open the log in %s: %w", dir, err)
	}
	if d.hard, _, err = d.log.InitialState(); err != nil {
		return err
	}
	// Started is written before the log's first entry, and a term is the first thing that a log
	// has. So a member that has started has at least a term.
	if d.last, err = d.log.LastIndex(); err == nil && d.id.Started && d.last == 0 && raft.IsEmptyHardState(d.hard) {
		return errors.New("its log is empty, but the member has run before: it is lost")
	}
	return err
}

// findBase chooses the state from which the replay starts: the last checkpoint, or a newer
// snapshot that another member sent, if a crash came before it replaced the checkpoint.
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
	// Before a received snapshot is considered: a log that is cut off may also have lost entries
	// behind that snapshot.
	if d.at.Index+1 >= first {
		if err := d.matchLog(); err != nil {
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
	case d.replacesLog():
		d.received, d.last = d.at.Index, d.at.Index
		return nil
	default:
		return d.matchLog()
	}
}

// matchLog fails if the log does not continue the state: it ends before the state's index, or has
// another term there.
func (d *memberDir) matchLog() error {
	if d.at.Index > d.last {
		return fmt.Errorf("the state in %s is of index %d, and the log ends at %d: it is cut off, or of another directory", d.base, d.at.Index, d.last)
	}
	term, err := d.log.Term(d.at.Index)
	if err != nil {
		return fmt.Errorf("read the log's term at index %d, the index of the state in %s: %w", d.at.Index, d.base, err)
	}
	if term != d.at.Term {
		return fmt.Errorf("the state in %s is of index %d in term %d, and the log has that index in term %d: one of the two is of another directory",
			d.base, d.at.Index, d.at.Term, term)
	}
	return nil
}

// findReceived makes the newest received snapshot the base if it is newer than the last
// checkpoint. A snapshot is durable and checked before it gets a name that counts here.
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
			"move it away to restore without it, which may lose acknowledged writes: %w", path, d.at.Index, memberdir.StateFile, err)
	}
	d.base, d.at = path, at
	return nil
}

// replacesLog reports whether the base is a received snapshot that raft would put in place of the
// whole log: it is committed, and the log ends before its index, or has another entry there, which
// was never committed. If the log knows its own entry there to be committed, the snapshot is of
// another directory.
func (d *memberDir) replacesLog() bool {
	if d.base == d.dir.Path(memberdir.StateFile) || d.at.Index <= d.hard.GetCommit() {
		return false
	}
	term, err := d.log.Term(d.at.Index)
	return d.at.Index > d.last || err == nil && term != d.at.Term
}
