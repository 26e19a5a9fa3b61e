package raftwal

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

var (
	protoSize  = proto.Size
	protoEqual = proto.Equal
)

// drawEntry returns an entry of which any field may be nil.
func drawEntry(t *rapid.T) *raftpb.Entry {
	e := &raftpb.Entry{}
	number := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64())
	if rapid.Bool().Draw(t, "has term") {
		e.Term = new(number.Draw(t, "term"))
	}
	if rapid.Bool().Draw(t, "has index") {
		e.Index = new(number.Draw(t, "index"))
	}
	if rapid.Bool().Draw(t, "has type") {
		e.Type = raftpb.EntryType(rapid.IntRange(0, 2).Draw(t, "type")).Enum()
	}
	if rapid.Bool().Draw(t, "has data") {
		e.Data = append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")...)
	}
	return e
}
