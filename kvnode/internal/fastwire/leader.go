package fastwire

import (
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// leaderField is etcd's number for ResponseHeader.leader_id, a field of a later version of its API. The
// generated code does not have it yet, so it travels as an unknown field, which other programs skip.
const leaderField protowire.Number = 5

// LeaderField writes leader IDs into response headers. Its zero value is ready, and any number of
// goroutines may use it: headers of one leader share their bytes.
type LeaderField struct{ last atomic.Pointer[encodedLeader] }

type encodedLeader struct {
	id    uint64
	bytes []byte
}

// Put puts id, unless it is 0, into a header that has none.
func (f *LeaderField) Put(h *pb.ResponseHeader, id uint64) {
	if id == 0 {
		return
	}
	e := f.last.Load()
	if e == nil || e.id != id {
		// Clipped, so that an append to one header's bytes does not write into those of the others.
		e = &encodedLeader{id, slices.Clip(protowire.AppendVarint(protowire.AppendTag(nil, leaderField, protowire.VarintType), id))}
		f.last.Store(e)
	}
	h.ProtoReflect().SetUnknown(e.bytes)
}

// LeaderOf returns the leader's ID in h, or 0 if there is none.
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
