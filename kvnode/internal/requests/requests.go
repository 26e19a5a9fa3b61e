// Package requests describes requests in logs and metrics: their operation, keys and sizes, never
// their values.
package requests

import (
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

const (
	// keyBytes limits the part of a key that is shown, so that it does not fill a log line.
	keyBytes = 64
	// maxShown limits the operations of a transaction that are shown.
	maxShown = 4
)

// Describe returns r in one printable line of limited length.
func Describe(r any) string {
	switch r := r.(type) {
	case *pb.RangeRequest:
		return keys("range", r.GetKey(), r.GetRangeEnd()) + number(" revision=", r.GetRevision()) + number(" limit=", r.GetLimit())
	case *pb.PutRequest:
		return keys("put", r.GetKey(), nil) + number(" lease=", r.GetLease()) + fmt.Sprintf(" value_size=%d", len(r.GetValue()))
	case *pb.DeleteRangeRequest:
		return keys("delete", r.GetKey(), r.GetRangeEnd())
	case *pb.TxnRequest:
		return fmt.Sprintf("txn compares=%d success=%s failure=%s", len(r.GetCompare()), operations(r.GetSuccess()), operations(r.GetFailure()))
	case *pb.CompactionRequest:
		return fmt.Sprintf("compaction revision=%d physical=%v", r.GetRevision(), r.GetPhysical())
	case *pb.LeaseGrantRequest:
		return fmt.Sprintf("lease_grant id=%x ttl=%d", uint64(r.GetID()), r.GetTTL())
	case *pb.LeaseRevokeRequest:
		return fmt.Sprintf("lease_revoke id=%x", uint64(r.GetID()))
	case proto.Message:
		return string(r.ProtoReflect().Descriptor().Name())
	default:
		return "unknown"
	}
}

func keys(what string, key, end []byte) string {
	what += " key=" + short(key)
	if len(end) > 0 {
		what += " range_end=" + short(end)
	}
	return what
}

// short quotes a key and escapes unprintable bytes.
func short(key []byte) string {
	if len(key) <= keyBytes {
		return strconv.QuoteToASCII(string(key))
	}
	return fmt.Sprintf("%s…(%d bytes)", strconv.QuoteToASCII(string(key[:keyBytes])), len(key))
}

func number(name string, n int64) string {
	if n == 0 {
		return ""
	}
	return name + strconv.FormatInt(n, 10)
}

func operations(ops []*pb.RequestOp) string {
	var shown []string
	for _, op := range ops[:min(len(ops), maxShown)] {
		switch {
		case op.GetRequestRange() != nil:
			shown = append(shown, Describe(op.GetRequestRange()))
		case op.GetRequestPut() != nil:
			shown = append(shown, Describe(op.GetRequestPut()))
		case op.GetRequestDeleteRange() != nil:
			shown = append(shown, Describe(op.GetRequestDeleteRange()))
		default:
			shown = append(shown, "txn") // a nested transaction may be deep
		}
	}
	if more := len(ops) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

// Op is the operation of a request, named as in etcd's metrics.
type Op int

// The operations. A log entry is never a ReadTxn.
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

// Applied returns the operation of a log entry, and the request in it.
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

// Of returns the operation of a client's request, or Unknown if etcd's metrics have no name for
// it.
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
