package requests

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Op is what a request does, as etcd's metrics name it.
type Op int

// The operations that there are. ReadTxn is never one of an entry of the log.
const (
	Unknown Op = iota
	Range
	ReadTxn
	Put
	DeleteRange
	Txn
	Compaction
	LeaseGrant
	LeaseRevoke
	LeaseCheckpoint
	Alarm
	MemberAttributes

	NumOps = int(MemberAttributes) + 1
)

var opNames = [NumOps]string{
	"unknown", "Range", "ReadonlyTxn", "Put", "DeleteRange", "Txn", "Compaction", "LeaseGrant", "LeaseRevoke", "LeaseCheckpoint",
	"Alarm", "ClusterMemberAttrSet",
}

// String returns etcd's name.
func (o Op) String() string { return opNames[o] }

// Applied returns what an entry of the log asks for, and the part of it that does.
func Applied(r *pb.InternalRaftRequest) (Op, proto.Message) {
	switch {
	case r.GetPut() != nil:
		return Put, r.GetPut()
	case r.GetTxn() != nil:
		return Txn, r.GetTxn()
	case r.GetDeleteRange() != nil:
		return DeleteRange, r.GetDeleteRange()
	case r.GetRange() != nil:
		return Range, r.GetRange()
	case r.GetCompaction() != nil:
		return Compaction, r.GetCompaction()
	case r.GetLeaseGrant() != nil:
		return LeaseGrant, r.GetLeaseGrant()
	case r.GetLeaseRevoke() != nil:
		return LeaseRevoke, r.GetLeaseRevoke()
	case r.GetLeaseCheckpoint() != nil:
		return LeaseCheckpoint, r.GetLeaseCheckpoint()
	case r.GetAlarm() != nil:
		return Alarm, r.GetAlarm()
	default:
		return Unknown, r
	}
}

// Of returns what a client's request does, as far as etcd's metrics have a name for it.
func Of(r any) Op {
	switch r.(type) {
	case *pb.RangeRequest:
		return Range
	case *pb.PutRequest:
		return Put
	case *pb.DeleteRangeRequest:
		return DeleteRange
	case *pb.TxnRequest:
		return Txn
	case *pb.CompactionRequest:
		return Compaction
	case *pb.LeaseGrantRequest:
		return LeaseGrant
	case *pb.LeaseRevokeRequest:
		return LeaseRevoke
	case *pb.AlarmRequest:
		return Alarm
	default:
		return Unknown
	}
}
