package fastwire

import (
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The leader is decoded, and nothing else in the header changes.
func TestALeaderArrives(t *testing.T) {
	var f LeaderField
	for _, id := range []uint64{0, 1, 300, math.MaxUint64, math.MaxUint64, 1} {
		h := &pb.ResponseHeader{ClusterId: 7, MemberId: 8, Revision: 9, RaftTerm: 10}
		f.Put(h, id)
		data, err := proto.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		got := new(pb.ResponseHeader)
		if err := proto.Unmarshal(data, got); err != nil {
			t.Fatal(err)
		}
		if LeaderOf(got) != id || got.GetClusterId() != 7 || got.GetMemberId() != 8 || got.GetRevision() != 9 || got.GetRaftTerm() != 10 {
			t.Errorf("leader %d arrives as %d, in the header %v", id, LeaderOf(got), got)
		}
	}
}

func TestPutAllocatesOncePerLeader(t *testing.T) {
	var f LeaderField
	h := &pb.ResponseHeader{}
	f.Put(h, math.MaxUint64)
	if n := testing.AllocsPerRun(100, func() { f.Put(h, math.MaxUint64) }); n != 0 {
		t.Errorf("Put allocates %v times, want 0", n)
	}
}

// Other unknown fields are not taken for a leader.
func TestWhatIsNoLeader(t *testing.T) {
	tag := protowire.AppendTag(nil, leaderField, protowire.VarintType)
	for name, unknown := range map[string][]byte{
		"nothing":         nil,
		"another field":   protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 3),
		"another kind":    protowire.AppendString(protowire.AppendTag(nil, leaderField, protowire.BytesType), "three"),
		"a tag alone":     tag,
		"half a number":   append(tag[:1:1], 0x80),
		"half a field":    append(protowire.AppendTag(nil, 6, protowire.BytesType), 9),
		"no tag":          {0x80},
		"no field at all": {0x00},
	} {
		h := &pb.ResponseHeader{}
		h.ProtoReflect().SetUnknown(unknown)
		if id := LeaderOf(h); id != 0 {
			t.Errorf("%s is leader %d, want none", name, id)
		}
	}
	if id := LeaderOf(nil); id != 0 {
		t.Errorf("no header names leader %d", id)
	}
	h := &pb.ResponseHeader{}
	h.ProtoReflect().SetUnknown(append(protowire.AppendString(protowire.AppendTag(nil, 9, protowire.BytesType), "later"), protowire.AppendVarint(tag, 3)...))
	if id := LeaderOf(h); id != 3 {
		t.Errorf("behind another field the leader is %d, want 3", id)
	}
}
