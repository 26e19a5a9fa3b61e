// Package leaderid puts the leader's member ID into response headers, and finds it there.
//
// etcd has given ResponseHeader a leader_id, field 5, for a version of its API that is to
// come. Until the generated code knows it, it travels as a field that is unknown: who does
// not know it skips it.
package leaderid

import (
	"slices"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

const field protowire.Number = 5

// Field writes leader IDs. Its zero value is ready, and may be used by any number of
// goroutines: headers of one leader share their bytes.
type Field struct{ last atomic.Pointer[encoded] }

type encoded struct {
	id    uint64
	bytes []byte
}

// Put puts id, unless it is 0, into a header that has none.
func (f *Field) Put(h *pb.ResponseHeader, id uint64) {
	if id == 0 {
		return
	}
	e := f.last.Load()
	if e == nil || e.id != id {
		// Clipped: who appends to those of one header must not write behind all.
		e = &encoded{id, slices.Clip(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), id))}
		f.last.Store(e)
	}
	h.ProtoReflect().SetUnknown(e.bytes)
}

// Of returns the leader's ID, or 0 if h says none.
func Of(h *pb.ResponseHeader) uint64 {
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
		if number == field && kind == protowire.VarintType {
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
