// Package restore makes the data directory of a member of a new cluster from a snapshot of
// kvnode or etcd, or from the data directory of a member that has stopped. It also checks and
// describes these sources. The commands kvnode snapshot and kvnode import call it.
//
// Invariants:
//   - The package starts no node and changes no source. A data directory is locked while it is read or
//     made.
//   - member.json is written last, so a restore that was interrupted leaves a directory that no
//     member starts with.
//   - Equal sources and options make equal cluster IDs, and other ones make other IDs. So all
//     members restored from one source form one cluster, which rejects all other members.
//   - The new cluster's terms are above all terms that the source knows.
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

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// Config configures Snapshot. File, Name, DataDir and Cluster are required.
type Config struct {
	// File is a snapshot file that a client saved, of kvnode or of etcd up to 3.7, or the data
	// directory of a member that has stopped. Snapshot replays the log of a data directory, so
	// the new cluster has all that the member had.
	File string
	// SkipHashCheck accepts a file with a missing or wrong checksum. Damaged records are
	// rejected all the same.
	SkipHashCheck bool

	// Name, DataDir, Cluster and Token are those of the member's kvnode.Config. DataDir must be
	// empty, or missing.
	Name, DataDir string
	Cluster       []memberdir.Member
	Token         string
	// PeerURLs are checked against this member's URLs in Cluster. Default: no check.
	PeerURLs []string

	// BumpRevision is added to the newest revision, and MarkCompacted marks all revisions below
	// the result as compacted. Both are set, or neither. Clients that have seen revisions newer
	// than the snapshot's then start over, instead of waiting for those revisions or mixing them
	// up with new ones of the same number.
	BumpRevision  int64
	MarkCompacted bool
	// BumpTerm is added to the source's term. So the new cluster's terms, and the fencing tokens
	// of its leaders, are above those that the old cluster reached after the snapshot. To
	// restore the same snapshot, or an older one, again, raise it above its value at the last
	// restore. Default: DefaultBumpTerm.
	BumpTerm uint64
	// QuotaBytes is the quota of the new members. A snapshot of etcd that does not fit is
	// rejected, because the members would accept no put. Default: none.
	QuotaBytes int64
	// SegmentSize is that of the log, see raftwal.Config. Default: raftwal's.
	SegmentSize int64

	// Logger receives a line when the restore is done. Default: none.
	Logger *slog.Logger
}

// DefaultBumpTerm is the default of Config.BumpTerm. A cluster that elects a leader every
// second reaches it in 31 years.
const DefaultBumpTerm = 1_000_000_000

// Result describes the directory that Snapshot made.
type Result struct {
	ClusterID, MemberID uint64
	Checkpoint          store.Checkpoint
	// Term is the term in which the member's log begins. Its first leader has a later one.
	Term uint64
	// Replayed describes the replay of a data directory's log. It is nil for a file.
	Replayed *Replayed
	// Imported describes a snapshot of etcd. It is nil for all other sources.
	Imported *Imported
}

// Snapshot makes the data directory of one member of a new cluster that begins with the state
// of cfg.File. kvnode.Start with the same Name, Cluster and Token then starts the member, and
// counts as a restart.
//
// Restore all members from the same file, or from copies of one directory, with the same
// options. The cluster's ID is derived from both. So the new cluster rejects members of the old
// one, and members restored from another source. Their logs do not match.
//
// The log begins at the source's index, in a term that no leader of the old cluster has reached
// (see Config.BumpTerm), so tokens of the leader lease are above all earlier ones. Tokens of
// locks are revisions. They repeat unless BumpRevision raises those, too.
func Snapshot(cfg Config) (Result, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.BumpTerm = cmp.Or(cfg.BumpTerm, DefaultBumpTerm)
	r, err := cfg.restore()
	if err != nil {
		return Result{}, fmt.Errorf("kvnode: restore member %q: %w", cfg.Name, err)
	}
	cfg.Logger.Info("restored a snapshot into a data directory", "dir", cfg.DataDir,
		"id", transport.ID(r.MemberID), "cluster", transport.ID(r.ClusterID),
		"index", r.Checkpoint.Index, "revision", r.Checkpoint.Revision, "term", r.Term)
	return r, nil
}

func (c *Config) dir() memberdir.Dir { return memberdir.Dir(c.DataDir) }

func (c *Config) owner() *memberdir.Owner {
	return &memberdir.Owner{Name: c.Name, Token: cmp.Or(c.Token, memberdir.DefaultToken), Cluster: c.Cluster}
}

func (c *Config) validate() error {
	bad := problems.List(c.owner().Validate())
	if err := transport.CheckName(c.Name); err != nil {
		bad = append(bad, err)
	}
	bad.If(c.DataDir == "", "no data directory")
	bad.If(c.BumpRevision < 0, "bump revision %d must not be negative", c.BumpRevision)
	bad.If(c.MarkCompacted != (c.BumpRevision > 0),
		"mark compacted is %v and bump revision %d: both are needed, or neither", c.MarkCompacted, c.BumpRevision)
	if len(bad) == 0 && len(c.PeerURLs) > 0 {
		got, want := slices.Sorted(slices.Values(c.PeerURLs)), slices.Sorted(slices.Values(c.owner().Self().PeerURLs))
		bad.If(!slices.Equal(got, want), "member %q is at %v in the initial cluster, but advertises %v", c.Name, want, got)
	}
	if len(bad) > 0 {
		return fmt.Errorf("invalid config: %w", errors.Join(bad...))
	}
	return nil
}

func (c *Config) restore() (_ Result, err error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	// The source is checked before anything is made, so a wrong source leaves nothing behind.
	src, err := c.openSource()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	_, statErr := os.Stat(c.DataDir)
	if statErr == nil {
		// Before Lock: if DataDir is the source itself, openSource has locked it.
		if err := c.dir().CheckEmpty(); err != nil {
			return Result{}, err
		}
	}
	lock, err := c.dir().Lock()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	// Again, under the lock: another restore may have come first.
	if err := c.dir().CheckEmpty(); err != nil {
		return Result{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.dir().Clear(statErr != nil))
		}
	}()
	made, err := c.makeDir(src)
	return made, errors.Join(err, fs.SyncDir(filepath.Dir(c.DataDir)))
}

// source is the state that a new cluster begins with. No process changes it before it is closed.
type source interface {
	// copyTo writes the state to a new database file.
	copyTo(path string) (origin, error)
	Close() error
}

// origin describes a source. Equal sources have equal sums. term is the highest term that the member
// of a data directory knew, 0 for a file.
type origin struct {
	sum      []byte
	term     uint64
	replayed *Replayed
	imported *Imported
}

func (c *Config) openSource() (source, error) {
	if isDir(c.File) {
		return openStoppedMember(c.File)
	}
	sum, err := checkSnapshotFile(c.File, c.SkipHashCheck)
	if err != nil {
		return nil, err
	}
	f, err := openEtcd(c.File)
	if f == nil || err != nil {
		return &snapshotFile{c.File, sum}, err
	}
	return newEtcdFile(f, c.File, sum, c.QuotaBytes)
}

// makeDir makes the contents of the data directory.
func (c *Config) makeDir(src source) (Result, error) {
	from, at, err := c.makeState(src)
	if err != nil {
		return Result{}, err
	}
	term, err := firstTerm(at, from.term, c.BumpTerm)
	if err != nil {
		return Result{}, err
	}
	if err := makeLog(raftwal.Config{Dir: c.dir().Log(), SegmentSize: c.SegmentSize}, at, term); err != nil {
		return Result{}, err
	}
	// The identity comes last: no member starts with a directory that lacks it.
	id := c.identity(from.sum)
	if err := c.dir().Write(&id); err != nil {
		return Result{}, err
	}
	return Result{ClusterID: id.ClusterID, MemberID: id.MemberID, Checkpoint: at, Term: term, Replayed: from.replayed, Imported: from.imported}, nil
}

// identity returns the identity of this member in the cluster that begins with a source of that
// sum.
func (c *Config) identity(sum []byte) memberdir.Identity {
	id := c.owner().FoundingIdentity()
	id.ClusterID = memberdir.HashID("restored", fmt.Sprintf("%x", id.ClusterID), fmt.Sprintf("%x", sum), fmt.Sprint(c.BumpRevision), fmt.Sprint(c.BumpTerm))
	id.Begin(c.owner(), rand.Text())
	// The operator has chosen the state that counts, so the member needs no other member's
	// permission to take part.
	id.Started, id.Admitted = true, true
	return id
}

// makeState writes the source's state to the data directory as that of the new cluster.
func (c *Config) makeState(src source) (origin, store.Checkpoint, error) {
	path := c.dir().Path(memberdir.StateFile)
	from, err := src.copyTo(path)
	if err != nil {
		return origin{}, store.Checkpoint{}, err
	}
	id := c.owner().FoundingIdentity()
	members := id.InitialMembers()
	conf := &raftpb.ConfState{}
	for _, m := range members {
		conf.Voters = append(conf.Voters, m.ID)
	}
	slices.Sort(conf.GetVoters())
	at, err := boltdb.Bootstrap(path, store.BootstrapConfig{
		Members: members, ConfState: conf, BumpRevision: c.BumpRevision, MarkCompacted: c.MarkCompacted,
	})
	return from, at, wrapStoreError(err)
}

// firstTerm returns the term in which the new cluster's log begins. A snapshot has only the term
// of its newest entry, and later leaders of the old cluster are unknown. A data directory also
// has the highest term that its member knew.
func firstTerm(at store.Checkpoint, voted, bump uint64) (uint64, error) {
	last := max(at.Term, voted)
	switch {
	case at.Term == 0:
		return 0, fmt.Errorf("%w: the entry of index %d has no term", ErrDamaged, at.Index)
	case last > math.MaxInt64 || bump > math.MaxInt64-last:
		return 0, fmt.Errorf("term %d cannot be raised by %d: no term may be above %d", last, bump, int64(math.MaxInt64))
	default:
		return last + bump, nil
	}
}

// makeLog makes a log that begins after the checkpoint at, with term in its hard state. No member votes in that term,
// because a candidate increments it first.
func makeLog(cfg raftwal.Config, at store.Checkpoint, term uint64) error {
	log, err := raftwal.Open(cfg)
	if err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	hard := &raftpb.HardState{Term: &term, Vote: new(uint64(0)), Commit: new(at.Index)}
	if err := errors.Join(log.Save(nil, hard, at.Snapshot()), log.Close()); err != nil {
		return fmt.Errorf("make the log: %w", err)
	}
	return nil
}
