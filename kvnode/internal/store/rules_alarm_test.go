package store_test

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestAlarmsRefuseWork(t *testing.T) {
	grows := txn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange("a", "")}, Failure: []*pb.RequestOp{opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", "1")}})}})
	shrinks := txn(&pb.TxnRequest{Success: []*pb.RequestOp{opDelete("a", ""), opRange("a", "")}})
	reads := &pb.InternalRaftRequest{Range: &pb.RangeRequest{Key: []byte("a")}}
	full, corrupt := rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCCorrupt
	for _, c := range []struct {
		name              string
		req               *pb.InternalRaftRequest
		nospace, oncorupt error
	}{
		{"put", put("a", "1"), full, corrupt},
		{"transaction with a put in any branch", grows, full, corrupt},
		{"transaction without put", shrinks, nil, corrupt},
		{"transaction of transactions without put", txn(&pb.TxnRequest{Failure: []*pb.RequestOp{opTxn(shrinks.GetTxn())}}), nil, corrupt},
		{"grant of a TTL lease", grant(9, 5), full, corrupt},
		{"revocation of a TTL lease", revoke(8), nil, corrupt},
		{"checkpoint of a TTL lease", remember(8, 3), nil, nil},
		{"delete", del("a", ""), nil, corrupt},
		{"range", reads, nil, corrupt},
		{"compaction", compact(3), nil, corrupt},
		{"alarm", &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{}}, nil, nil},
	} {
		for kind, want := range map[pb.AlarmType]error{pb.AlarmType_NOSPACE: c.nospace, pb.AlarmType_CORRUPT: c.oncorupt} {
			r := history(t)
			r.must(grant(8, 5))
			r.must(activate(7, kind))
			if _, err := r.request(c.req); err != want { //nolint:errorlint // clients see this very value
				t.Errorf("%s under %v = %v, want %v", c.name, kind, err, want)
			}
			r.must(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 7, Alarm: kind}})
			if _, err := r.request(put("a", "1")); err != nil {
				t.Errorf("put after %v was cleared = %v", kind, err)
			}
		}
	}
}

func TestAlarmResponses(t *testing.T) {
	r := newReplica(t)
	ask := func(action pb.AlarmRequest_AlarmAction, member uint64, kind pb.AlarmType) string {
		resp, ok := r.must(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: action, MemberID: member, Alarm: kind}}).(*pb.AlarmResponse)
		if !ok {
			t.Fatal("no AlarmResponse")
		}
		var out []string
		for _, m := range resp.GetAlarms() {
			out = append(out, fmt.Sprint(m.GetMemberID(), m.GetAlarm()))
		}
		return strings.Join(out, ",")
	}
	const get, on, off = pb.AlarmRequest_GET, pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE
	for i, c := range []struct {
		action pb.AlarmRequest_AlarmAction
		member uint64
		kind   pb.AlarmType
		want   string
	}{
		{get, 0, pb.AlarmType_NONE, ""},
		{on, 2, pb.AlarmType_CORRUPT, "2 CORRUPT"},
		{on, 2, pb.AlarmType_CORRUPT, "2 CORRUPT"},
		{on, 9, pb.AlarmType_NOSPACE, "9 NOSPACE"},
		{on, 1, pb.AlarmType_NOSPACE, "1 NOSPACE"},
		{on, 1, pb.AlarmType_NONE, ""},
		{get, 0, pb.AlarmType_NONE, "1 NOSPACE,9 NOSPACE,2 CORRUPT"},
		{get, 0, pb.AlarmType_CORRUPT, "2 CORRUPT"},
		{off, 1, pb.AlarmType_CORRUPT, ""},
		{off, 2, pb.AlarmType_CORRUPT, "2 CORRUPT"},
		{pb.AlarmRequest_AlarmAction(9), 2, pb.AlarmType_NOSPACE, ""},
		{get, 0, pb.AlarmType_NONE, "1 NOSPACE,9 NOSPACE"},
	} {
		if got := ask(c.action, c.member, c.kind); got != c.want {
			t.Errorf("step %d: alarm(%v, %d, %v) = %q, want %q", i, c.action, c.member, c.kind, got, c.want)
		}
	}
	if got := r.Alarms(); len(got) != 2 || got[0].GetMemberID() != 1 {
		t.Errorf("Alarms() = %v, want those of members 1 and 9", got)
	}
}
