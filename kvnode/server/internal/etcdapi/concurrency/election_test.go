package concurrency

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	epb "github.com/leaderlease/go/kvnode/server/internal/etcdapi/concurrency/v3electionpb"
)

// observed has the values that an observer has received.
type observed struct {
	c      *cluster
	stream epb.Election_ObserveClient
	told   chan string
	end    error
}

func (c *cluster) observe(ctx context.Context, m *member) *observed {
	c.Helper()
	stream, err := m.election.Observe(ctx, &epb.LeaderRequest{Name: []byte("e")})
	must(c, err)
	o := &observed{c: c, stream: stream, told: make(chan string, 100)}
	go func() {
		defer close(o.told)
		for {
			resp, err := stream.Recv()
			if err != nil {
				o.end = err
				return
			}
			o.told <- string(resp.GetKv().GetValue())
		}
	}()
	settle()
	return o
}

// want waits until all updates have arrived and compares them.
func (o *observed) want(values ...string) {
	o.c.Helper()
	settle()
	var got []string
	for len(o.told) > 0 {
		got = append(got, <-o.told)
	}
	if !slices.Equal(got, values) {
		o.c.Errorf("Observe() told %q, want %q", got, values)
	}
}

// An observer receives every leader and every proclamation, at any member and from any time on.
func TestElection(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		early := c.observe(t.Context(), follower)
		early.want()
		_, err := leader.election.Leader(t.Context(), &epb.LeaderRequest{Name: []byte("e")})
		wantError(t, "Leader() without a leader", err, codes.Unknown, "election: no leader")

		lease := c.grant(60)
		first, err := campaignBy(t.Context(), follower, lease, "a1")()
		must(t, err)
		key := first.GetLeader()
		if key.GetRev() != first.GetHeader().GetRevision() || key.GetLease() != lease || string(key.GetName()) != "e" || len(c.keys()) != 1 || c.keys()[0] != string(key.GetKey()) {
			t.Errorf("Campaign() = %v, want the key of TTL lease %d", first, lease)
		}
		second := waits(c, campaignBy(t.Context(), leader, 0, "b1"))
		late := c.observe(t.Context(), leader)
		_, err = leader.election.Proclaim(t.Context(), &epb.ProclaimRequest{Leader: key, Value: []byte("a2")})
		must(t, err)
		now, err := follower.election.Leader(t.Context(), &epb.LeaderRequest{Name: []byte("e")})
		if err != nil || string(now.GetKv().GetValue()) != "a2" || now.GetKv().GetCreateRevision() != key.GetRev() {
			t.Errorf("Leader() = %v, %v, want a2 of %v", now, err, key)
		}
		late.want("a1", "a2")
		_, err = leader.election.Resign(t.Context(), &epb.ResignRequest{Leader: key})
		must(t, err)
		a := <-second
		must(t, a.err)
		if a.v.GetLeader().GetRev() <= key.GetRev() {
			t.Errorf("the second leader's revision is %d, want more than %d", a.v.GetLeader().GetRev(), key.GetRev())
		}
		late.want("b1")
		early.want("a1", "a2", "b1")

		// A former leader cannot proclaim, and may resign again.
		_, err = leader.election.Proclaim(t.Context(), &epb.ProclaimRequest{Leader: key, Value: []byte("a3")})
		wantError(t, "Proclaim() of a former leader", err, codes.Unknown, "election: not leader")
		_, err = leader.election.Resign(t.Context(), &epb.ResignRequest{Leader: key})
		must(t, err)
		early.want()
		if len(c.keys()) != 1 {
			t.Errorf("keys = %q, want the second leader's", c.keys())
		}
	})
}

// A candidate that gives up leaves no key, also after it has campaigned twice.
func TestACandidateThatGivesUpLeavesNothing(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := campaignBy(t.Context(), leader, 0, "a")()
		must(t, err)
		mine := c.grant(60)
		held, before := c.keys(), c.leases()
		for name, lease := range map[string]int64{"its own TTL lease": mine, "none": 0} {
			ctx, cancel := context.WithCancel(t.Context())
			given := waits(c, campaignBy(ctx, follower, lease, "b"))
			again := waits(c, campaignBy(ctx, follower, lease, "c"))
			cancel()
			wantError(t, "Campaign() of a caller with "+name, (<-given).err, codes.Canceled, "context canceled")
			wantError(t, "Campaign() again with "+name, (<-again).err, codes.Canceled, "context canceled")
			settle()
			if got := c.keys(); !slices.Equal(got, held) || c.leases() != before {
				t.Errorf("keys = %q over %d TTL leases after a caller with %s gave up, want %q over %d", got, c.leases(), name, held, before)
			}
		}
	})
}

// When a leader's TTL lease expires, the next candidate is elected. A candidate with an expired
// TTL lease is skipped.
func TestLeadershipGoesWithItsLease(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m := c.members[0]
		_, err := campaignBy(t.Context(), m, c.grant(20), "a")()
		must(t, err)
		lost := waits(c, campaignBy(t.Context(), m, c.grant(10), "b"))
		o := c.observe(t.Context(), m)
		began := time.Now()
		_, err = campaignBy(t.Context(), m, 0, "c")()
		must(t, err)
		if took := time.Since(began); took < 18*time.Second || took > 25*time.Second {
			t.Errorf("the election was won after %v, want about the TTL of 20s", took)
		}
		wantError(t, "Campaign() of a lost TTL lease", (<-lost).err, codes.Unknown, "election: not leader")
		o.want("a", "c")
	})
}

// An observer gets an error from a member that stops or is partitioned.
func TestObserversAreToldOfTheEnd(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		leader, follower := c.leader()
		_, err := campaignBy(t.Context(), leader, 0, "a")()
		must(t, err)
		stopped, cut := c.observe(t.Context(), leader), c.observe(t.Context(), follower)
		ctx, cancel := context.WithCancel(t.Context())
		left := c.observe(ctx, leader)
		for _, o := range []*observed{stopped, cut, left} {
			o.want("a")
		}
		cancel()
		c.net.Isolate(follower.Name())
		time.Sleep(15 * time.Second)
		leader.end()
		settle()
		for _, o := range []*observed{stopped, cut, left} {
			for value := range o.told {
				t.Errorf("Observe() told %q, want nothing more", value)
			}
		}
		wantError(t, "Observe() of a member that stops", stopped.end, codes.Unavailable, "etcdserver: server stopped")
		wantError(t, "Observe() of a caller that left", left.end, codes.Canceled, "context canceled")
		if status.Code(cut.end) != codes.Unavailable || errors.Is(cut.end, io.EOF) {
			t.Errorf("Observe() of a member that is cut off = %v, want Unavailable", cut.end)
		}
	})
}

// Invalid requests are rejected with etcd's texts and codes.
func TestElectionsThatCannotBe(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		m, ctx := c.members[0], t.Context()
		_, err := campaignBy(ctx, m, 77, "v")()
		wantError(t, "Campaign() of an unknown TTL lease", err, codes.Unknown, "etcdserver: requested lease not found")
		_, err = m.election.Proclaim(ctx, new(epb.ProclaimRequest))
		wantError(t, "Proclaim() without a leader key", err, codes.Unknown, `"leader" field must be provided`)
		_, err = m.election.Resign(ctx, new(epb.ResignRequest))
		wantError(t, "Resign() without a leader key", err, codes.Unknown, `"leader" field must be provided`)
		nothing := new(epb.LeaderKey)
		_, err = m.election.Proclaim(ctx, &epb.ProclaimRequest{Leader: nothing})
		wantError(t, "Proclaim() of no key", err, codes.Unknown, "etcdserver: key is not provided")
		_, err = m.election.Resign(ctx, &epb.ResignRequest{Leader: nothing})
		wantError(t, "Resign() of no key", err, codes.Unknown, "etcdserver: key is not provided")
		key := &epb.LeaderKey{Key: []byte("unknown"), Rev: 5}
		_, err = m.election.Proclaim(ctx, &epb.ProclaimRequest{Leader: key})
		wantError(t, "Proclaim() of another", err, codes.Unknown, "election: not leader")
		_, err = m.election.Resign(ctx, &epb.ResignRequest{Leader: key})
		must(t, err)
		if got := c.leases(); got != 0 {
			t.Errorf("%d TTL leases are left, want none", got)
		}
		if resp, err := m.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil || resp.GetCount() != 0 {
			t.Errorf("Range() = %v, %v, want nothing", resp, err)
		}
	})
}
