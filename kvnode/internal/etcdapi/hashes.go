package etcdapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/internal/hashcheck"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// Hashers are all members of the cluster, this one first, by way of which their
// hashes can be compared.
func (a *API) Hashers() []*hashcheck.Member {
	self := &hashcheck.Member{
		ID: a.node.ID(), Hash: func(_ context.Context, revision int64) (store.Hash, error) { return a.node.Store().HashKV(revision) },
	}
	all := []*hashcheck.Member{self}
	for id, m := range a.node.Store().Members().ByID {
		if id == self.ID {
			self.Name = m.Name
			continue
		}
		all = append(all, &hashcheck.Member{
			ID: id, Name: m.Name, Hash: func(ctx context.Context, revision int64) (store.Hash, error) { return a.hashOf(ctx, &m, revision) },
		})
	}
	slices.SortFunc(all[1:], func(x, y *hashcheck.Member) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// Dial returns a connection to a member's client URLs. Of answers that have a header,
// those of another cluster are refused.
func (a *API) Dial(m *store.Member) (*grpc.ClientConn, error) {
	return dialMember(m.ClientURLs, slices.Concat(a.cfg.LeaderDial, sameCluster(a.node.ClusterID()).options()))
}

// hashOf asks another member. What somebody else answers at its address, be it of
// another cluster or another member of this one, is no hash of that member.
func (a *API) hashOf(ctx context.Context, m *store.Member, revision int64) (h store.Hash, err error) {
	conn, err := a.Dial(m)
	if err != nil {
		return h, err
	}
	defer func() { _ = conn.Close() }() // the call is over
	r, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
	if err != nil {
		return h, err
	}
	if id := r.GetHeader().GetMemberId(); id != m.ID {
		return h, fmt.Errorf("kvnode: who answers at the client URLs %q of %s is member %x, not %x", m.ClientURLs, m.Name, id, m.ID)
	}
	return store.Hash{
		Hash: r.GetHash(), CompactRevision: r.GetCompactRevision(), HashRevision: r.GetHashRevision(), Revision: r.GetHeader().GetRevision(),
	}, nil
}
