package store_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// The registry follows a member from its addition to its removal.
func TestMembersFollowChangesAndRegistrations(t *testing.T) {
	r := newReplica(t)
	index := uint64(0)
	change := func(c store.MemberChange) {
		index++
		r.ApplyConf(index, 1, nil, &c)
	}
	register := func(m store.Member, want error) {
		t.Helper()
		index++
		if res := r.Apply(index, 1, encode(t, &store.Command{ID: 5, Register: &m})); res.Err != want || res.ID != 5 { //nolint:errorlint // clients see this very value
			t.Errorf("Apply(register %+v) = %+v, want %v", m, res, want)
		}
	}
	expect := func(what string, want store.Members) {
		t.Helper()
		if got := r.Members(); !reflect.DeepEqual(*got, want) {
			t.Errorf("Members() %s = %+v, want %+v", what, *got, want)
		}
	}
	self := store.Member{ID: 1, Name: "one", ClientURLs: []string{"http://c:1"}, Instance: "x", PeerURLs: []string{"ignored"}, Learner: true}
	register(self, rpctypes.ErrGRPCMemberNotFound)
	expect("of an empty store", store.Members{ByID: map[uint64]store.Member{}, Removed: map[uint64]bool{}})

	urls := []string{"http://p:1"}
	change(store.MemberChange{Set: &store.Member{ID: 1, PeerURLs: urls, Learner: true}})
	urls[0] = "changed by the caller"
	before := r.Members()
	register(self, nil)
	known := store.Member{ID: 1, Name: "one", ClientURLs: []string{"http://c:1"}, Instance: "x", PeerURLs: []string{"http://p:1"}, Learner: true}
	expect("after a registration", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})
	if before.ByID[1].Name != "" {
		t.Errorf("an older registry changed: %+v", before)
	}

	change(store.MemberChange{Set: &store.Member{ID: 1, PeerURLs: []string{"http://p:2"}}})
	known.PeerURLs, known.Learner = []string{"http://p:2"}, false
	expect("after a promotion", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})

	wiped := self
	wiped.Instance = "y"
	register(wiped, store.ErrInstance)
	expect("after a member came back without its directory", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})

	change(store.MemberChange{Remove: 1})
	register(self, rpctypes.ErrGRPCMemberNotFound)
	expect("after a removal", store.Members{ByID: map[uint64]store.Member{}, Removed: map[uint64]bool{1: true}})
}

// A configuration change that is applied already changes nothing, and does not lower the index.
func TestAnAppliedChangeIsNotAppliedAgain(t *testing.T) {
	s := openStore(t, newBackend())
	defer shut(t, s)
	s.ApplyConf(5, 2, &raftpb.ConfState{Voters: []uint64{1}}, nil)
	for _, index := range []uint64{5, 4} {
		s.ApplyConf(index, 9, &raftpb.ConfState{Voters: []uint64{7}}, &store.MemberChange{ClusterVersion: store.ClusterVersionNewest})
		if s.ClusterVersion() != store.ClusterVersionFirst || s.Applied() != 5 {
			t.Errorf("after entry %d again: cluster version %d, applied %d, want %d and 5", index, s.ClusterVersion(), s.Applied(), store.ClusterVersionFirst)
		}
	}
}

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
