package restore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
)

// Replayed says what the log of a data directory has added to the member's last
// checkpoint.
type Replayed struct {
	// Entries were applied, up to index Last, which is of term Term. Of several
	// directories that are left, the one with the highest term, and among those the
	// highest index, is the one to take, as in an election, unless another one's
	// Committed is not in its log, or is there in another term.
	Entries, Last, Term uint64
	// Committed is the last index that the member knew to be committed, and Beyond is
	// how many entries come after it. Those that were lost may have acknowledged them.
	Committed, Beyond uint64
	// Torn is the interrupted batch at the end of the log, which nobody acknowledged,
	// and Lost why the member had been told to begin anew: empty, as a rule.
	Torn, Lost string
	// Received is the index of a snapshot that another member had sent, and that is
	// restored in place of the log, which is older: 0, as a rule.
	Received uint64
}

// copyTo makes the state as of the end of the log a database in the file to.
func (d *memberDir) copyTo(to string) (origin, error) {
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
		return origin{}, fmt.Errorf("data directory %s: %w", d.dir, explainForeign(err))
	}
	return origin{sum: sum.Sum(nil), term: max(d.hard.GetTerm(), r.Term), replayed: r}, nil
}

// replayInto applies the rest of the log to the state in the file path.
func (d *memberDir) replayInto(path string, sum hash.Hash) (_ *Replayed, err error) {
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
	if err := d.belongs(s.Members()); err != nil {
		return nil, err
	}
	at, err := s.Checkpoint(nil)
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

// changesPage is how much of the log is read together.
const changesPage = 1 << 20

// replay applies all that follows on the state, committed or not: those who are lost may
// have acknowledged it, and then it must be there. What nobody has acknowledged may be.
func (d *memberDir) replay(s *store.Store, sum hash.Hash) error {
	for next := d.at.Index + 1; next <= d.last; {
		entries, err := d.log.Entries(next, d.last+1, changesPage)
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

// applyOffline does to the state what applyEntry does, without raft: who votes does not
// matter to it, and what it says of members the new cluster forgets.
func applyOffline(s *store.Store, e *raftpb.Entry) error {
	if !confchange.Is(e) {
		s.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
		return nil
	}
	plan := confchange.PlanEntry(s.Members(), e, store.FormatNewest)
	if plan.Stop == nil {
		s.ApplyConf(e.GetIndex(), e.GetTerm(), nil, plan.Registry)
	}
	return plan.Stop
}

// belongs refuses a log, or a state, that is of another cluster than the identity, or of
// this member in another directory.
func (d *memberDir) belongs(members *store.Members) error {
	m, known := members.ByID[d.id.MemberID]
	switch {
	case !known && !d.id.Joined && !members.Removed[d.id.MemberID]:
		return fmt.Errorf("%s is of member %x (%s), of which the log knows nothing: one of the two is of another directory", memberdir.IdentityFile, d.id.MemberID, d.id.Name)
	case known && m.Instance != "" && m.Instance != d.id.Instance:
		return fmt.Errorf("the log knows member %x (%s) with another directory than that of %s: one of the two is of another directory", m.ID, m.Name, memberdir.IdentityFile)
	default:
		return nil
	}
}

// inspectDir describes what a restore of the directory would begin with. It needs room
// for a copy of the state in the directory for temporary files.
func inspectDir(path string) (_ SnapshotInfo, err error) {
	d, err := openMemberDir(path)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	tmp, err := os.MkdirTemp("", "kvnode-status")
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	to := filepath.Join(tmp, memberdir.StateFile)
	from, err := d.copyTo(to)
	if err != nil {
		return SnapshotInfo{}, err
	}
	info, err := os.Stat(to)
	if err != nil {
		return SnapshotInfo{}, err
	}
	s, err := boltdb.Inspect(to)
	return SnapshotInfo{Summary: s, Size: info.Size(), Replayed: from.replayed}, explainForeign(err)
}
