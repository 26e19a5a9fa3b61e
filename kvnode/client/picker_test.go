package client

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// targets returns the endpoints that get the leader's requests in the next six picks.
func targets(k *leaderCache, names ...string) []string {
	p := &picker{known: k}
	for _, name := range names {
		p.ready = append(p.ready, &endpoint{name: name, known: k})
	}
	var got []string
	for range 6 {
		got = append(got, p.choose(true).name)
	}
	slices.Sort(got)
	return slices.Compact(got)
}

func TestWhereRequestsGo(t *testing.T) {
	const a, b = "a", "b"
	for _, tc := range []struct {
		name  string
		tell  func(*leaderCache)
		ready []string
		want  []string
	}{
		{"nothing is known", func(*leaderCache) {}, []string{a, b}, []string{a, b}},
		{"the leader answers", func(k *leaderCache) { k.recordAnswer(a, 1, 1) }, []string{a, b}, []string{a}},
		{"a follower names a leader that has not answered", func(k *leaderCache) { k.recordAnswer(a, 1, 2) }, []string{a, b}, []string{a, b}},
		{"a follower names one that has", func(k *leaderCache) { k.recordAnswer(b, 2, 0); k.recordAnswer(a, 1, 2) }, []string{a, b}, []string{b}},
		{"a server that names no leader", func(k *leaderCache) { k.recordAnswer(a, 1, 0); k.recordAnswer(b, 2, 0) }, []string{a, b}, []string{a, b}},
		{"one that has lost its leader", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordAnswer(b, 2, 0) }, []string{a, b}, []string{a}},
		{"another leader", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordAnswer(b, 2, 2) }, []string{a, b}, []string{b}},
		{"another member at the leader's endpoint", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordAnswer(a, 3, 0) }, []string{a, b}, []string{a, b}},
		{"the leader's endpoint has no connection", func(k *leaderCache) { k.recordAnswer(a, 1, 1) }, []string{b}, []string{b}},
		{"the leader's endpoint is gone for good", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.retain(map[string]bool{b: true}) }, []string{a, b}, []string{a, b}},
		{"the leader lets a request fail", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordFailure(a, time.Now().Add(time.Hour)) }, []string{a, b}, []string{b}},
		{"it is the only one", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordFailure(a, time.Now().Add(time.Hour)) }, []string{a}, []string{a}},
		{"a while ago", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordFailure(a, time.Now().Add(-failurePause)) }, []string{a, b}, []string{a}},
		{"a follower lets a request fail", func(k *leaderCache) { k.recordAnswer(a, 1, 1); k.recordFailure(b, time.Now().Add(time.Hour)) }, []string{a, b}, []string{a}},
		{"a header without a member", func(k *leaderCache) { k.recordAnswer(a, 0, 1) }, []string{a, b}, []string{a, b}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := newLeaderCache()
			tc.tell(k)
			if got := targets(k, tc.ready...); !slices.Equal(got, tc.want) {
				t.Errorf("requests go to %v, want %v", got, tc.want)
			}
		})
	}
}

// Requests to the leader do not advance the rotation: otherwise clients that alternate writes and
// reads would send all other requests to the same endpoints.
func TestWhatIsForTheLeaderTakesNoTurn(t *testing.T) {
	k := newLeaderCache()
	k.recordAnswer("a", 1, 1)
	p := &picker{known: k, ready: []*endpoint{{name: "a", known: k}, {name: "b", known: k}}}
	turns := make(map[string]int)
	for range 4 {
		p.choose(true)
		turns[p.choose(false).name]++
	}
	if turns["a"] != 2 || turns["b"] != 2 {
		t.Errorf("what goes round goes to %v, want 2 each", turns)
	}
}

// A response without news allocates nothing.
func TestKnownAnswersDoNotAllocate(t *testing.T) {
	k := newLeaderCache()
	k.recordAnswer("a", 1, 1)
	p := &picker{known: k, ready: []*endpoint{{name: "a", known: k}, {name: "b", known: k}}}
	if n := testing.AllocsPerRun(100, func() { k.recordAnswer("a", 1, 1); p.choose(true) }); n != 0 {
		t.Errorf("a response and a choice allocate %v times, want 0", n)
	}
}

func TestWhatIsForTheLeader(t *testing.T) {
	const kv, lease, cluster = "/etcdserverpb.KV/", "/etcdserverpb.Lease/", "/etcdserverpb.Cluster/"
	read := func(stale bool) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Serializable: stale}}}
	}
	write := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
	for _, tc := range []struct {
		name, method string
		request      any
		want         bool
	}{
		{"a linearizable read", kv + "Range", &pb.RangeRequest{}, true},
		{"a serializable read", kv + "Range", &pb.RangeRequest{Serializable: true}, false},
		{"a write", kv + "Put", &pb.PutRequest{}, true},
		{"a transaction that writes", kv + "Txn", &pb.TxnRequest{Success: []*pb.RequestOp{read(true), write}}, true},
		{"one that writes otherwise", kv + "Txn", &pb.TxnRequest{Success: []*pb.RequestOp{read(true)}, Failure: []*pb.RequestOp{write}}, true},
		{"one that reads what is linearizable", kv + "Txn", &pb.TxnRequest{Success: []*pb.RequestOp{read(false)}}, true},
		{"one that reads what may be stale", kv + "Txn", &pb.TxnRequest{Success: []*pb.RequestOp{read(true)}, Failure: []*pb.RequestOp{read(true)}}, false},
		{"a TTL lease", lease + "LeaseGrant", &pb.LeaseGrantRequest{}, true},
		{"a list of members", cluster + "MemberList", &pb.MemberListRequest{Linearizable: true}, true},
		{"one that may be stale", cluster + "MemberList", &pb.MemberListRequest{}, false},
		{"a change of members", cluster + "MemberAdd", &pb.MemberAddRequest{}, true},
		{"a member's status", "/etcdserverpb.Maintenance/Status", &pb.StatusRequest{}, false},
		{"a lock", "/v3lockpb.Lock/Lock", struct{}{}, true},
		{"another service's", "/grpc.health.v1.Health/Check", struct{}{}, false},
	} {
		if got := toLeader(tc.method, tc.request); got != tc.want {
			t.Errorf("%s: for the leader %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A wait for a lock that reaches its deadline does not count against the leader. A failed request
// does, and so does a closed connection.
func TestFailuresOfTheLeader(t *testing.T) {
	const lock, campaign, put = "/v3lockpb.Lock/Lock", "/v3electionpb.Election/Campaign", "/etcdserverpb.KV/Put"
	for _, tc := range []struct {
		method string
		code   codes.Code
		want   bool // the leader's endpoint is skipped for a while
	}{
		{put, codes.DeadlineExceeded, true},
		{put, codes.Unavailable, true},
		{put, codes.ResourceExhausted, false},
		{lock, codes.DeadlineExceeded, false},
		{campaign, codes.DeadlineExceeded, false},
		{lock, codes.Unavailable, true},
	} {
		k := newLeaderCache()
		k.recordAnswer("a", 1, 1)
		err := intercept(t.Context(), tc.method, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			c, _ := ctx.Value(callKey{}).(*call)
			c.endpoint.Store(&endpoint{name: "a", known: k})
			return status.Error(tc.code, "")
		})
		if got := k.state.Load().failedRecently("a", time.Now()); got != tc.want || status.Code(err) != tc.code {
			t.Errorf("%s ends with %v: the leader is left alone: %v, want %v", tc.method, err, got, tc.want)
		}
	}
}
