package restore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// Replayed describes what the log of a data directory added to the member's last checkpoint.
type Replayed struct {
	// Entries is the number of entries that were applied, up to index Last, which has term Term.
	// Among the directories of several members, choose the one with the highest Term, and among
	// those the highest Last, as raft's elections do. Do not choose it if its log lacks the entry
	// at another directory's Committed, or has it in another term.
	Entries, Last, Term uint64
	// Committed is the last index that the member knew to be committed, and Beyond is the number
	// of entries after it. The members that are lost may have acknowledged those.
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

// replayInto applies the log to the state in the file path.
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
	if err := checkOwner(&d.id, s.Members()); err != nil {
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

// replay applies all entries after the base, committed or not. The members that are lost may have
// acknowledged an entry that this one does not know to be committed, so it must be kept. An entry
// that no member acknowledged may be kept, as raft may commit it, too.
func (d *memberDir) replay(s *store.Store, sum hash.Hash) error {
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

// checkOwner fails if the log and the state are of another cluster than the identity, or of the
// same member's earlier directory.
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
