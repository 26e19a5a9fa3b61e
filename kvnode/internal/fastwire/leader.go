package fastwire

import (
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// leaderField is the number of ResponseHeader.leader_id in a later version of etcd's API. The
// generated code does not have it yet, so it is sent as an unknown field, which other programs
// skip.
const leaderField protowire.Number = 5

// LeaderField writes leader IDs into response headers. Headers with the same leader share the
// encoded bytes. The zero value is ready to use. Its methods are safe for concurrent use.
type LeaderField struct{ last atomic.Pointer[encodedLeader] }

type encodedLeader struct {
	id    uint64
	bytes []byte
}

// Put writes id into a header without a leader, unless it is 0.
func (f *LeaderField) Put(h *pb.ResponseHeader, id uint64) {
	if id == 0 {
		return
	}
	e := f.last.Load()
	if e == nil || e.id != id {
		// Clip, so that appending to one header's bytes does not modify another's.
		e = &encodedLeader{id, slices.Clip(protowire.AppendVarint(protowire.AppendTag(nil, leaderField, protowire.VarintType), id))}
		f.last.Store(e)
	}
	h.ProtoReflect().SetUnknown(e.bytes)
}

// LeaderOf returns the leader's ID in h, or 0.
func LeaderOf(h *pb.ResponseHeader) uint64 {
	if h == nil {
		return 0
	}
	if known, ok := any(h).(interface{ GetLeaderId() uint64 }); ok {
		return known.GetLeaderId()
	}
	for b := []byte(h.ProtoReflect().GetUnknown()); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0
		}
		b = b[n:]
		if number == leaderField && kind == protowire.VarintType {
			id, _ := protowire.ConsumeVarint(b)
			return id
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0
		}
		b = b[n:]
	}
	return 0
}
