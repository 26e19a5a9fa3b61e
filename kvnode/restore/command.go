package restore

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Command says in a few words what a log entry does, for a dump. Values are not shown: a dump
// is sent to others more easily than a database.
func Command(e *raftpb.Entry) string {
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
