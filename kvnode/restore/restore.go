package restore

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/memberdir"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/store/boltdb"
	"github.com/leaderlease/go/kvnode/transport"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// RestoreConfig says what RestoreSnapshot makes of a snapshot. File, Name, DataDir
// and Cluster are required.
type RestoreConfig struct {
	// File is what a client's snapshot save wrote, of kvnode or of etcd up to 3.7, or the
	// data directory of a member that does not run, whose log is replayed: nothing that it
	// had is lost.
	File string
	// SkipHashCheck takes a file whose checksum is missing or wrong. Damage to
	// records is found all the same.
	SkipHashCheck bool

	// Name, DataDir, Cluster and Token are those of the member's kvnode.Config. DataDir must be
	// empty, or missing.
	Name, DataDir string
	Cluster       []memberdir.Member
	Token         string
	// PeerURLs are to be this member's in Cluster. They are checked if given.
	PeerURLs []string

	// BumpRevision and MarkCompacted go together: the newest revision is raised
	// by so much, and all below it counts as compacted. Clients that have seen
	// revisions newer than the snapshot's then begin anew instead of waiting
	// for, or mixing up, revisions that come again.
	BumpRevision  int64
	MarkCompacted bool
	// BumpTerm is added to the snapshot's term: the new cluster's terms, and with
	// them the fencing tokens of its leaders, are above those that the saved one
	// reached after the snapshot. Whoever restores the same snapshot, or an older
	// one, once more raises it beyond what it was before. Default: DefaultBumpTerm.
	BumpTerm uint64
	// QuotaBytes is the quota that the members will have. An import from etcd that does
	// not fit is refused: its members would take no put. Default: none.
	QuotaBytes int64

	// Logger receives a line when it is done. Default: none.
	Logger *slog.Logger

	// SegmentSize is raftwal's. Default: its own.
	SegmentSize int64
}

// DefaultBumpTerm is by how much a restore raises the term unless it is told to do
// otherwise. A cluster that elects a leader each second reaches it in 31 years.
const DefaultBumpTerm = 1_000_000_000

// Restored is what RestoreSnapshot has made.
type Restored struct {
	ClusterID, MemberID uint64
	Checkpoint          store.Checkpoint
	// Term is that in which the member begins: its first leader's is above it.
	Term uint64
	// Replayed is of a data directory, nil for a file.
	Replayed *Replayed
	// Imported is of a file of etcd's, else nil.
	Imported *Imported
}

// RestoreSnapshot makes the data directory of one member of a new cluster that
// begins with the state in a snapshot, or in a member's data directory. Start then starts it, with the same Name,
// Cluster and Token; that counts as a restart.
//
// All members are restored from the same file, or copies of one directory, with the same options. The
// cluster's ID is derived from both, so that neither members of the old cluster
// nor members restored from another file are let in: their logs do not fit.
//
// The log begins at the snapshot's index, in a term that no leader of the saved
// cluster has reached (see BumpTerm): tokens of the leader lease are above all that
// were given before. The tokens of locks are revisions and come again unless those
// are raised, too.
func RestoreSnapshot(cfg RestoreConfig) (Restored, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.BumpTerm = cmp.Or(cfg.BumpTerm, DefaultBumpTerm)
	r, err := cfg.restore()
	if err != nil {
		return Restored{}, fmt.Errorf("kvnode: restore member %q: %w", cfg.Name, err)
	}
	cfg.Logger.Info("restored a snapshot into a data directory", "dir", cfg.DataDir,
		"id", transport.ID(r.MemberID), "cluster", transport.ID(r.ClusterID),
		"index", r.Checkpoint.Index, "revision", r.Checkpoint.Revision, "term", r.Term)
	return r, nil
}

func (r *RestoreConfig) dir() memberdir.Dir { return memberdir.Dir(r.DataDir) }

func (r *RestoreConfig) owner() *memberdir.Owner {
	return &memberdir.Owner{Name: r.Name, Token: cmp.Or(r.Token, memberdir.DefaultToken), Cluster: r.Cluster}
}

func (r *RestoreConfig) validate() error {
	bad := problems(r.owner().Validate())
	if err := transport.CheckName(r.Name); err != nil {
		bad = append(bad, err)
	}
	bad.If(r.DataDir == "", "no data directory")
	bad.If(r.BumpRevision < 0, "bump revision %d must not be negative", r.BumpRevision)
	bad.If(r.MarkCompacted != (r.BumpRevision > 0),
		"mark compacted is %v and bump revision %d: both are needed, or neither", r.MarkCompacted, r.BumpRevision)
	if len(bad) == 0 && len(r.PeerURLs) > 0 {
		got, want := slices.Sorted(slices.Values(r.PeerURLs)), slices.Sorted(slices.Values(r.owner().Self().PeerURLs))
		bad.If(!slices.Equal(got, want), "member %q is at %v in the initial cluster, but advertises %v", r.Name, want, got)
	}
	if len(bad) > 0 {
		return fmt.Errorf("invalid config: %w", errors.Join(bad...))
	}
	return nil
}

// problems collects what is wrong with a configuration, so that one error reports all of it.
type problems []error

// If adds an error if wrong. The format gives the value and its limit.
func (p *problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (r *RestoreConfig) restore() (_ Restored, err error) {
	if err := r.validate(); err != nil {
		return Restored{}, err
	}
	// It is read once before anything is made: a wrong file leaves nothing behind.
	src, err := r.open()
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	_, missing := os.Stat(r.DataDir)
	if missing == nil {
		if err := r.dir().CheckEmpty(); err != nil { // the source itself, say, which is locked
			return Restored{}, err
		}
	}
	lock, err := r.dir().Lock()
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := r.dir().CheckEmpty(); err != nil {
		return Restored{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.dir().Clear(missing != nil))
		}
	}()
	made, err := r.fill(src)
	return made, errors.Join(err, fs.SyncDir(filepath.Dir(r.DataDir)))
}

// source is what a restore begins with. Nobody changes it before it is closed.
type source interface {
	// copyTo makes its state a database in a new file.
	copyTo(path string) (origin, error)
	Close() error
}

// origin tells what was restored from all else: equal sources have equal sums. No vote
// in it is of a later term than term, as far as it knows.
type origin struct {
	sum      []byte
	term     uint64
	replayed *Replayed
	imported *Imported
}

func (r *RestoreConfig) open() (source, error) {
	if isDir(r.File) {
		return openMemberDir(r.File)
	}
	sum, err := checkSnapshotFile(r.File, r.SkipHashCheck)
	if err != nil {
		return nil, err
	}
	f, err := openEtcd(r.File)
	if f == nil || err != nil {
		return &snapshotCopy{r.File, sum}, err
	}
	return newEtcdFile(f, r.File, sum, r.QuotaBytes)
}

// fill makes what is in the data directory.
func (r *RestoreConfig) fill(src source) (Restored, error) {
	id := r.owner().Found()
	from, at, err := r.restoreStore(id.Founders(), src)
	if err != nil {
		return Restored{}, err
	}
	id = r.refounded(from.sum)
	term, err := r.raise(at, from.term)
	if err != nil {
		return Restored{}, err
	}
	if err := r.beginLog(r.dir().Log(), at, term); err != nil {
		return Restored{}, err
	}
	// The identity comes last: a directory without it is refused, whatever it
	// holds.
	if err := r.dir().Write(&id); err != nil {
		return Restored{}, err
	}
	return Restored{ClusterID: id.ClusterID, MemberID: id.MemberID, Checkpoint: at, Term: term, Replayed: from.replayed, Imported: from.imported}, nil
}

// refounded returns who this member is in the cluster that begins with a snapshot
// of that sum.
func (r *RestoreConfig) refounded(sum []byte) memberdir.Identity {
	id := r.owner().Found()
	id.ClusterID = memberdir.HashID("restored", fmt.Sprintf("%x", id.ClusterID), fmt.Sprintf("%x", sum), fmt.Sprint(r.BumpRevision), fmt.Sprint(r.BumpTerm))
	id.Begin(r.owner(), rand.Text())
	// Whoever restores says by that which state counts, so nobody is asked.
	id.Started, id.Admitted = true, true
	return id
}

// restoreStore makes the state of members out of the source.
func (r *RestoreConfig) restoreStore(members []store.Member, src source) (origin, store.Checkpoint, error) {
	path := r.dir().Path(memberdir.StateFile)
	from, err := src.copyTo(path)
	if err != nil {
		return origin{}, store.Checkpoint{}, err
	}
	conf := &raftpb.ConfState{}
	for _, m := range members {
		conf.Voters = append(conf.Voters, m.ID)
	}
	slices.Sort(conf.GetVoters())
	at, err := boltdb.Refound(path, store.Refounding{
		Members: members, ConfState: conf, BumpRevision: r.BumpRevision, MarkCompacted: r.MarkCompacted,
	})
	return from, at, explainForeign(err)
}

// raise returns the term in which the new cluster begins. The snapshot knows the
// term of its newest entry, and nothing of the leaders that came after it; a data
// directory knows the last term, too, in which its member voted.
func (r *RestoreConfig) raise(at store.Checkpoint, voted uint64) (uint64, error) {
	last := max(at.Term, voted)
	switch {
	case at.Term == 0:
		return 0, fmt.Errorf("%w: the entry of index %d has no term", ErrSnapshotDamaged, at.Index)
	case last > math.MaxInt64 || r.BumpTerm > math.MaxInt64-last:
		return 0, fmt.Errorf("term %d cannot be raised by %d: no term may be above %d", last, r.BumpTerm, int64(math.MaxInt64))
	default:
		return last + r.BumpTerm, nil
	}
}

// beginLog makes a log that begins behind a checkpoint. Nobody has voted in term:
// whoever campaigns does so in a later one.
func (r *RestoreConfig) beginLog(dir string, at store.Checkpoint, term uint64) error {
	log, err := raftwal.Open(raftwal.Config{Dir: dir, SegmentSize: r.SegmentSize})
	if err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	hard := &raftpb.HardState{Term: &term, Vote: new(uint64(0)), Commit: new(at.Index)}
	if err := errors.Join(log.Save(nil, hard, at.Snapshot()), log.Close()); err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	return nil
}
