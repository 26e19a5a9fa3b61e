package etcdapi

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Beyond the quota nothing that grows is taken, the alarm is raised once, and
// reads and deletions go on, so that room can be made.
func TestQuotaRefusesGrowthAndRaisesTheAlarm(t *testing.T) {
	s := startServer(t, Config{QuotaBytes: 1})
	before := s.proposals()
	for _, grow := range []any{
		&pb.PutRequest{Key: []byte("k")},
		&pb.PutRequest{}, // as in etcd, the quota comes first
		&pb.TxnRequest{Failure: ops(opTxn(nil, ops(opPut("k"))))},
	} {
		wantStatus(t, "growing beyond the quota", s.call(t.Context(), grow), rpctypes.ErrGRPCNoSpace)
	}
	if got := s.proposals() - before; got != 1 {
		t.Errorf("%d proposals, want one that raises the alarm", got)
	}
	if got := s.store.Alarms(); len(got) != 1 || got[0].GetAlarm() != pb.AlarmType_NOSPACE || got[0].GetMemberID() != testMember {
		t.Errorf("alarms = %v, want NOSPACE of this member", got)
	}
	for _, fine := range []any{
		&pb.RangeRequest{Key: []byte("k")},
		&pb.DeleteRangeRequest{Key: []byte("k")},
		&pb.TxnRequest{Success: ops(opDel("k", "z"))},
		&pb.CompactionRequest{Revision: 1},
	} {
		if err := s.call(t.Context(), fine); err != nil {
			t.Errorf("%T beyond the quota = %v", fine, err)
		}
	}
}

func TestQuotaComesInThreeKinds(t *testing.T) {
	for _, c := range []struct {
		name  string
		quota int64
		want  error
	}{
		{"default", 0, nil},
		{"none", -1, nil},
		{"small", 1, rpctypes.ErrGRPCNoSpace},
	} {
		s := startServer(t, Config{QuotaBytes: c.quota})
		wantStatus(t, "Put with quota "+c.name, s.call(t.Context(), &pb.PutRequest{Key: []byte("k")}), c.want)
	}
}

func TestCostIsThatOfTheDearerBranch(t *testing.T) {
	small, large := opPut("k"), opPut("kkk")
	for _, c := range []struct {
		name string
		req  *pb.TxnRequest
		want int64
	}{
		{"nothing", &pb.TxnRequest{}, 0},
		{"reads and deletions", &pb.TxnRequest{Success: ops(opGet("k"), opDel("k", ""))}, 0},
		{"the first branch", &pb.TxnRequest{Success: ops(large), Failure: ops(small)}, 259},
		{"the second branch", &pb.TxnRequest{Success: ops(large), Failure: ops(small, small)}, 514},
		{"an inner one", &pb.TxnRequest{Success: ops(small, opTxn(ops(small), ops(large)))}, 516},
	} {
		if got := txnCost(c.req); got != c.want {
			t.Errorf("txnCost(%s) = %d, want %d", c.name, got, c.want)
		}
	}
}
