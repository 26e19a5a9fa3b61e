package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// Info describes a source.
type Info struct {
	store.Summary
	// Size is the size of the file, or of the state that a data directory makes.
	Size int64
	// Replayed describes the replay of a data directory's log. It is nil for a file.
	Replayed *Replayed
	// Etcd describes a snapshot of etcd; Hash is then etcd's hash. It is nil for all other sources.
	Etcd *Imported
}

// Inspect reads all of a source, checks it, and changes nothing. A source is a snapshot file, a
// database that was copied from the data directory of a member that has stopped, or the whole
// directory. Inspect replays a directory's log on a copy of the state, for which the directory
// for temporary files needs space.
func Inspect(path string) (Info, error) {
	if isDir(path) {
		return inspectDir(path)
	}
	f, size, err := openSnapshotFile(path)
	if err != nil {
		return Info{}, err
	}
	if err := f.Close(); err != nil {
		return Info{}, err
	}
	if _, err := checkSnapshotFile(path, size%snapshotAlign == 0); err != nil {
		return Info{}, err
	}
	etcds, err := openEtcd(path)
	if err != nil {
		return Info{}, err
	}
	if etcds != nil {
		s, err := etcds.Summary()
		return Info{Summary: s.Summary, Size: size, Etcd: &s}, errors.Join(wrapStoreError(err), etcds.Close())
	}
	s, err := boltdb.Inspect(path)
	return Info{Summary: s, Size: size}, wrapStoreError(err)
}

func inspectDir(path string) (_ Info, err error) {
	d, err := openStoppedMember(path)
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	tmp, err := os.MkdirTemp("", "kvnode-status")
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	to := filepath.Join(tmp, memberdir.StateFile)
	from, err := d.copyTo(to)
	if err != nil {
		return Info{}, err
	}
	info, err := os.Stat(to)
	if err != nil {
		return Info{}, err
	}
	s, err := boltdb.Inspect(to)
	return Info{Summary: s, Size: info.Size(), Replayed: from.replayed}, wrapStoreError(err)
}

// DescribeEntry says in a few words what a log entry does, for a dump. Values are not shown: a dump
// is sent to others more easily than a database.
func DescribeEntry(e *raftpb.Entry) string {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return ""
	}
	c, err := store.DecodeCommand(e.GetData())
	switch {
	case err != nil:
		return "unreadable: " + err.Error()
	case c.Register != nil:
		return fmt.Sprintf("register %x %q", c.Register.ID, c.Register.Name)
	case c.Request != nil:
		return request(c.Request)
	default:
		return "none"
	}
}

func request(r *pb.InternalRaftRequest) string {
	switch {
	case r.GetPut() != nil:
		return fmt.Sprintf("put %q", r.GetPut().GetKey())
	case r.GetDeleteRange() != nil:
		return fmt.Sprintf("delete %q", r.GetDeleteRange().GetKey())
	case r.GetTxn() != nil:
		return fmt.Sprintf("txn of %d compares, %d and %d operations",
			len(r.GetTxn().GetCompare()), len(r.GetTxn().GetSuccess()), len(r.GetTxn().GetFailure()))
	case r.GetCompaction() != nil:
		return fmt.Sprintf("compact %d", r.GetCompaction().GetRevision())
	default:
		return other(r)
	}
}

// other names the field that is set.
func other(r *pb.InternalRaftRequest) string {
	m := r.ProtoReflect()
	fields := m.Descriptor().Fields()
	var names []string
	for i := range fields.Len() {
		if f := fields.Get(i); f.Message() != nil && m.Has(f) && f.Name() != "header" {
			names = append(names, string(f.Name()))
		}
	}
	return strings.Join(names, ", ")
}
