package restore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal"
)

// stoppedMember is a source: the data directory of a member that has stopped. Nothing in it is
// changed, and no member can start with it before Close.
type stoppedMember struct {
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

// openStoppedMember fails if a process runs with the directory, or if its state and its log do not
// match.
func openStoppedMember(path string) (_ *stoppedMember, err error) {
	d := &stoppedMember{dir: memberdir.Dir(path)}
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

func (d *stoppedMember) Close() error {
	var errs []error
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}

func (d *stoppedMember) readIdentity() (err error) {
	d.id, err = d.dir.Read()
	switch {
	case !errors.Is(err, os.ErrNotExist):
		return err
	case isDir(d.dir.Path("member")):
		return fmt.Errorf("%w, but the data of an etcd member: %s", ErrForeign, ImportAdvice)
	default:
		return fmt.Errorf("%w: it holds no %s, so it is not a kvnode data directory, or not a complete one", ErrForeign, memberdir.IdentityFile)
	}
}

func (d *stoppedMember) openLog() (err error) {
	dir := d.dir.Log()
	if d.log, err = raftwal.OpenReadOnly(raftwal.Config{Dir: dir}); err != nil {
		return fmt.Errorf("open the log in %s: %w", dir, err)
	}
	if d.hard, _, err = d.log.InitialState(); err != nil {
		return err
	}
	// Started is written to the identity when the first write of the log is durable, and that write has at least a
	// term. So the log of a member that has started is not empty.
	if d.last, err = d.log.LastIndex(); err == nil && d.id.Started && d.last == 0 && raft.IsEmptyHardState(d.hard) {
		return errors.New("its log is empty, but the member has run before: it is lost")
	}
	return err
}

// findBase chooses the state from which the replay starts: the last checkpoint, or a newer
// snapshot that another member sent, if a crash came before it replaced the checkpoint.
func (d *stoppedMember) findBase() error {
	first, err := d.log.FirstIndex()
	if err != nil {
		return err
	}
	d.base = d.dir.Path(memberdir.StateFile)
	d.at, err = boltdb.ReadCheckpoint(d.base)
	if err != nil && !errors.Is(err, store.ErrNoCheckpoint) {
		return wrapStoreError(err)
	}
	// The log must match the checkpoint even if a received snapshot replaces it below: a log that is cut off may also
	// have lost entries after that snapshot.
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
func (d *stoppedMember) matchLog() error {
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

// findReceived makes the newest received snapshot the base if it is newer than the last checkpoint. A received
// snapshot gets its final name only after it was checked and is durable.
func (d *stoppedMember) findReceived() error {
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

// replacesLog reports whether the base is a received snapshot that raft would put in place of the whole log: its
// index is above the commit index, and the log ends before it or has another entry there.
func (d *stoppedMember) replacesLog() bool {
	if d.base == d.dir.Path(memberdir.StateFile) || d.at.Index <= d.hard.GetCommit() {
		return false
	}
	term, err := d.log.Term(d.at.Index)
	return d.at.Index > d.last || err == nil && term != d.at.Term
}

// Replayed describes what the log of a data directory added to the member's last checkpoint.
type Replayed struct {
	// Entries is the number of entries that were applied, up to index Last, which has term Term.
	// Among the directories of several members, choose the one with the highest Term, and among
	// those the highest Last, as raft's elections do. Do not choose it if its log lacks the entry
	// at another directory's Committed, or has it in another term.
	Entries, Last, Term uint64
	// Committed is the last index that the member knew to be committed, and Beyond is the number of entries after it.
	// The lost members may have acknowledged those entries as well.
	Committed, Beyond uint64
	// Torn describes an interrupted write at the end of the log, which no member acknowledged.
	// Lost is why the member had to stop for good: it lacked entries that it had acknowledged.
	// Both are empty as a rule.
	Torn, Lost string
	// Received is the index of a snapshot from another member that replaced an older log, else 0.
	Received uint64
}

// logPage is how many bytes of the log are read at once.
const logPage = 1 << 20

// copyTo writes the state as of the end of the log to a new database file.
func (d *stoppedMember) copyTo(to string) (origin, error) {
	src, err := os.Open(d.base)
	if err != nil {
		return origin{}, err
	}
	sum := sha256.New()
	if err := errors.Join(writeNew(to, src, sum), src.Close()); err != nil {
		return origin{}, fmt.Errorf("copy %s: %w", d.base, err)
	}
	r, err := d.replayInto(to, sum)
	if err != nil {
		return origin{}, fmt.Errorf("data directory %s: %w", d.dir, wrapStoreError(err))
	}
	return origin{sum: sum.Sum(nil), term: max(d.hard.GetTerm(), r.Term), replayed: r}, nil
}

// replayInto applies the log to the state in the file path.
func (d *stoppedMember) replayInto(path string, sum hash.Hash) (_ *Replayed, err error) {
	backend, err := boltdb.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Backend: backend})
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := d.replay(s, sum); err != nil {
		return nil, err
	}
	if err := checkOwner(&d.id, s.Members()); err != nil {
		return nil, err
	}
	at, err := s.SaveCheckpoint(nil)
	if err != nil {
		return nil, err
	}
	r := &Replayed{Entries: at.Index - d.at.Index, Last: at.Index, Term: at.Term, Committed: max(d.hard.GetCommit(), d.at.Index), Received: d.received, Lost: d.id.Lost}
	r.Beyond = at.Index - min(at.Index, r.Committed)
	if torn := d.log.Recovered().Torn; torn != nil {
		r.Torn = fmt.Sprintf("%s from offset %d on: %s", torn.File, torn.Offset, torn.Reason)
	}
	return r, nil
}

// replay applies all entries after the base, committed or not. An entry that this member does not know to be
// committed may be committed, if the lost members have acknowledged it, so it must be kept. Keeping an entry that is
// not committed does no harm: raft might have committed it later.
func (d *stoppedMember) replay(s *store.Store, sum hash.Hash) error {
	for next := d.at.Index + 1; next <= d.last; {
		entries, err := d.log.Entries(next, d.last+1, logPage)
		if err != nil {
			return fmt.Errorf("read the log from index %d: %w", next, err)
		}
		for _, e := range entries {
			if err := applyOffline(s, e); err != nil {
				return fmt.Errorf("entry of index %d: %w", next, err)
			}
			sum.Write(fmt.Appendf(nil, "%d %d %d %d ", e.GetIndex(), e.GetTerm(), e.GetType(), len(e.GetData())))
			sum.Write(e.GetData())
			next++
		}
	}
	return nil
}

// applyOffline changes the state as the applier of a node does, without raft. The new cluster gets a
// configuration of its own, so the store is given none. checkOwner needs the registry.
func applyOffline(s *store.Store, e *raftpb.Entry) error {
	if !membership.IsConfChange(e) {
		s.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
		return nil
	}
	plan := membership.PlanEntry(s.Members(), e, store.ClusterVersionNewest)
	if plan.Stop == nil {
		s.ApplyConf(e.GetIndex(), e.GetTerm(), nil, plan.Registry)
	}
	return plan.Stop
}

// checkOwner fails if the log and the state are of another cluster than the identity, or of another directory of the
// same member.
func checkOwner(id *memberdir.Identity, members *store.Members) error {
	m, known := members.ByID[id.MemberID]
	switch {
	case !known && !id.Joined && !members.Removed[id.MemberID]:
		return fmt.Errorf("%s is of member %x (%s), of which the log knows nothing: one of the two is of another directory", memberdir.IdentityFile, id.MemberID, id.Name)
	case known && m.Instance != "" && m.Instance != id.Instance:
		return fmt.Errorf("the log knows member %x (%s) with another directory than that of %s: one of the two is of another directory", m.ID, m.Name, memberdir.IdentityFile)
	default:
		return nil
	}
}
