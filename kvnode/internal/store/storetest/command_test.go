package storetest_test

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// kinds is the number of kinds of commands. The number of a write decides its kind.
	kinds = 24
	// history is how many revisions a compaction leaves.
	history = 12
)

// Command implements leasetest.Machine. Every kind of write puts key; some put other keys, too. A
// few commands write nothing.
func (m *Machine) Command(key, write uint64) []byte {
	c := &store.Command{ID: write, Request: &pb.InternalRaftRequest{}}
	put := &pb.PutRequest{Key: name(key), Value: binary.BigEndian.AppendUint64(nil, write), PrevKv: write%2 == 0}
	switch kind := write % kinds; {
	case kind == 5:
		rev := max(m.store.Revision()-history, 1)
		c.Request.Compaction = &pb.CompactionRequest{Revision: rev}
	case kind == 11:
		c.Request, c.Register = nil, &store.Member{
			ID: 1 + write%7, Name: fmt.Sprintf("member-%d", write), Instance: fmt.Sprint(write),
		}
	case kind == 17:
		// Term 1 has no leader, so the store drops this command.
		c.RequiredTerm, c.Request.Put = 1, put
	case kind%4 == 0:
		c.Request.Put = put
	case kind%4 == 1:
		c.Request.Txn = clearing(key, put)
	case kind%4 == 2:
		c.Request.Txn = branching(key, write, put)
	default:
		c.Request.Txn = nested(key, write, put)
	}
	data, err := c.Encode()
	must(err)
	return data
}

// branching writes key and some of the keys beside it.
func branching(key, write uint64, put *pb.PutRequest) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: name(key), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER,
			TargetUnion: &pb.Compare_Version{Version: int64(write % 3)},
		}},
		Success: []*pb.RequestOp{putOp(put), putOp(beside(key, write)), putOp(beside(key, write+1)), rangeOp(key)},
		Failure: []*pb.RequestOp{putOp(beside(key, write+2)), putOp(put)},
	}
}

// clearing writes key and deletes the keys beside it.
func clearing(key uint64, put *pb.PutRequest) *pb.TxnRequest {
	prefix, end := besidePrefix(key)
	del := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: prefix, RangeEnd: end, PrevKv: true},
	}}
	return &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp(key), del, putOp(put)}}
}

// nested is branching in a transaction around it.
func nested(key, write uint64, put *pb.PutRequest) *pb.TxnRequest {
	inner := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: branching(key, write, put)}}
	return &pb.TxnRequest{
		Success: []*pb.RequestOp{putOp(beside(key, write+4)), inner},
	}
}

func putOp(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

// rangeOp reads the keys beside key.
func rangeOp(key uint64) *pb.RequestOp {
	prefix, end := besidePrefix(key)
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: prefix, RangeEnd: end},
	}}
}

// beside puts one of the nine keys beside key.
func beside(key, write uint64) *pb.PutRequest {
	prefix, _ := besidePrefix(key)
	return &pb.PutRequest{
		Key: append(prefix, byte('a'+write%9)), Value: binary.BigEndian.AppendUint64(nil, write),
	}
}

func name(key uint64) []byte { return fmt.Appendf(nil, "key/%d", key) }

func besidePrefix(key uint64) (prefix, end []byte) {
	return fmt.Appendf(nil, "beside/%d/", key), fmt.Appendf(nil, "beside/%d0", key)
}

// change returns the change of the member registry for a configuration change.
func change(e *raftpb.Entry) *store.MemberChange {
	var id uint64
	var kind raftpb.ConfChangeType
	switch e.GetType() {
	case raftpb.EntryConfChange:
		cc := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), cc))
		id, kind = cc.GetNodeId(), cc.GetType()
	default:
		cc := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), cc))
		if len(cc.GetChanges()) == 0 {
			return nil
		}
		id, kind = cc.GetChanges()[0].GetNodeId(), cc.GetChanges()[0].GetType()
	}
	if kind == raftpb.ConfChangeRemoveNode {
		return &store.MemberChange{Remove: id}
	}
	return &store.MemberChange{Set: &store.Member{
		ID: id, PeerURLs: []string{fmt.Sprintf("http://member-%d", id)}, Learner: kind == raftpb.ConfChangeAddLearnerNode,
	}}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
