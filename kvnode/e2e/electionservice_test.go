package e2e

import (
	"context"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc/codes"

	"github.com/leaderlease/go/internal/testcluster"
)

// elector is a member's Election service through the stubs that etcd generates.
func elector(c *clientv3.Client) v3electionpb.ElectionClient {
	return v3electionpb.NewElectionClient(c.ActiveConnection())
}

// next fails unless the next that an observer is told is the value of that key.
func next(t *testing.T, o v3electionpb.Election_ObserveClient, key *v3electionpb.LeaderKey, value string) {
	t.Helper()
	resp, err := o.Recv()
	if err != nil {
		t.Fatal(err)
	}
	kv := resp.GetKv()
	if string(kv.GetValue()) != value || string(kv.GetKey()) != string(key.GetKey()) || kv.GetCreateRevision() != key.GetRev() || kv.GetLease() != key.GetLease() {
		t.Errorf("Observe() told %v, want %q of %v", resp, value, key)
	}
	if h := resp.GetHeader(); h.GetRevision() < kv.GetModRevision() || h.GetMemberId() == 0 {
		t.Errorf("Observe() told it with the header %v, want one of that change or after it", h)
	}
}

// An election from its beginning to its end, observed at two members.
func TestElectionService(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		a, b := memberClients(t, c)
		name := &v3electionpb.LeaderRequest{Name: []byte("e")}
		_, err := elector(a).Leader(ctx, name)
		wantStatus(t, "Leader() without a leader", err, codes.Unknown, "election: no leader")
		early, err := elector(b).Observe(ctx, name)
		must(t, err)

		lease := granted(t, a, 60)
		first, err := elector(a).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease, Value: []byte("a1")})
		must(t, err)
		key := first.GetLeader()
		if string(key.GetName()) != "e" || string(key.GetKey()) != fmt.Sprintf("e/%x", lease) || key.GetRev() != first.GetHeader().GetRevision() || key.GetLease() != lease {
			t.Errorf("Campaign() = %v, want the key of TTL lease %x", first, lease)
		}
		next(t, early, key, "a1")
		second := background(t, a, "e/", 2, func() (*v3electionpb.CampaignResponse, error) {
			return elector(b).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Value: []byte("b1")})
		})
		_, err = elector(b).Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("a2")})
		must(t, err)
		next(t, early, key, "a2")
		late, err := elector(a).Observe(ctx, name)
		must(t, err)
		next(t, late, key, "a2")
		leader, err := elector(b).Leader(ctx, name)
		if err != nil || string(leader.GetKv().GetValue()) != "a2" || leader.GetKv().GetCreateRevision() != key.GetRev() {
			t.Errorf("Leader() = %v, %v, want a2 of %v", leader, err, key)
		}

		_, err = elector(b).Resign(ctx, &v3electionpb.ResignRequest{Leader: key})
		must(t, err)
		r := <-second
		must(t, r.err)
		for _, o := range []v3electionpb.Election_ObserveClient{early, late} {
			next(t, o, r.resp.GetLeader(), "b1")
		}
		_, err = elector(a).Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("a3")})
		wantStatus(t, "Proclaim() after Resign()", err, codes.Unknown, "election: not leader")
		_, err = elector(a).Resign(ctx, &v3electionpb.ResignRequest{Leader: key})
		must(t, err)
	})
}

// A candidate that gives up leaves the line, and leadership goes with its TTL lease.
func TestElectionServiceForgetsWhoGivesUp(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		a, b := memberClients(t, c)
		lease := granted(t, a, 5) // seconds, after the second is in line
		_, err := elector(a).Campaign(deadline(t), &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease})
		must(t, err)
		ctx, cancel := context.WithCancel(deadline(t))
		given := background(t, a, "e/", 2, func() (*v3electionpb.CampaignResponse, error) {
			return elector(b).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: granted(t, a, 60)})
		})
		cancel()
		wantStatus(t, "Campaign() of a caller that gave up", (<-given).err, codes.Canceled, "context canceled")
		r, err := elector(b).Campaign(deadline(t), &v3electionpb.CampaignRequest{Name: []byte("e")})
		must(t, err)
		if got := inLine(t, a, "e/", 1); got[0] != string(r.GetLeader().GetKey()) {
			t.Errorf("keys = %q, want %q", got, r.GetLeader().GetKey())
		}
	}, electsSoon)
}

// What cannot be is refused with the same codes and texts.
func TestElectionServiceRefuses(t *testing.T) {
	eachSize(t, func(t *testing.T, c *testcluster.Cluster) {
		ctx := deadline(t)
		_, b := memberClients(t, c)
		e := elector(b)
		_, err := e.Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: 77})
		wantStatus(t, "Campaign() of an unknown TTL lease", err, codes.Unknown, "etcdserver: requested lease not found")
		for what, leader := range map[string]*v3electionpb.LeaderKey{
			`"leader" field must be provided`: nil,
			"etcdserver: key is not provided": {},
		} {
			_, err = e.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: leader})
			wantStatus(t, "Proclaim()", err, codes.Unknown, what)
			_, err = e.Resign(ctx, &v3electionpb.ResignRequest{Leader: leader})
			wantStatus(t, "Resign()", err, codes.Unknown, what)
		}
		none := &v3electionpb.LeaderKey{Name: []byte("e"), Key: []byte("e/none"), Rev: 5, Lease: granted(t, b, 60)}
		_, err = e.Proclaim(ctx, &v3electionpb.ProclaimRequest{Leader: none})
		wantStatus(t, "Proclaim() without a leader", err, codes.Unknown, "election: not leader")
		_, err = e.Resign(ctx, &v3electionpb.ResignRequest{Leader: none})
		must(t, err)
	})
}
