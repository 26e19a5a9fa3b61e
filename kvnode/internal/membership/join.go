package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// MemberList returns the list that members send to a Joiner. Every program that can connect may read it, so it contains
// no secret; an instance is only an identifier.
func MemberList(clusterID, self uint64, s *store.Store) (transport.MemberList, error) {
	applied := s.Applied() // read before Members, so that the list includes at least that index
	all := Sorted(s.Members())
	if len(all) == 0 {
		return transport.MemberList{}, errors.New("this member does not know the others yet")
	}
	for i := range all {
		all[i].ClientURLs = nil // no joiner needs them, and the size of a packet is limited
	}
	data, err := json.Marshal(all)
	return transport.MemberList{ClusterID: clusterID, From: self, Members: data, Applied: applied}, err
}

// Joiner asks the members of an existing cluster for their member list, before this member takes part.
type Joiner struct {
	Owner *memberdir.Owner // this member's configuration
	Dial  func(ctx context.Context, addr string) (net.Conn, error)
	// JoinTimeout bounds Join, CheckTimeout bounds ForeignCluster.
	JoinTimeout, CheckTimeout time.Duration
	// Advice returns the advice for a member that has lost its data directory.
	Advice func(id uint64) string
}

// Join returns the identity of this member in the cluster that it was added to. It looks for this member's peer URLs
// in the member list, because Changer.Add has registered them together with a new ID.
func (j *Joiner) Join() (id memberdir.Identity, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), j.JoinTimeout)
	defer cancel()
	var addrs []string
	for _, m := range j.others() {
		addrs = append(addrs, peerurl.HostPorts(m.PeerURLs)...)
	}
	if len(addrs) == 0 {
		return memberdir.Identity{}, errors.New("join an existing cluster: the initial cluster has no other member to ask")
	}
	err = j.ask(ctx, addrs, func(addr string, r transport.MemberList) error {
		if id, err = j.find(r); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		return nil
	})
	if err != nil {
		return memberdir.Identity{}, fmt.Errorf("join an existing cluster: %w", err)
	}
	return id, nil
}

// ForeignCluster returns the ID of another cluster if all other members answer, and none of them belongs to
// this member's cluster (own). Otherwise it returns 0: a single member of another cluster may be misconfigured, and a
// member that does not answer may start later.
func (j *Joiner) ForeignCluster(own uint64) (foreign uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), j.CheckTimeout)
	defer cancel()
	others := j.others()
	answers := make(chan uint64, len(others))
	for _, m := range others {
		go func() { answers <- j.clusterOf(ctx, &m) }()
	}
	all := true
	for range others {
		foreign = <-answers
		all = all && foreign != 0 && foreign != own
	}
	if !all {
		return 0
	}
	return foreign
}

// clusterOf asks a member for its cluster ID, and returns 0 without an answer.
func (j *Joiner) clusterOf(ctx context.Context, m *memberdir.Member) (id uint64) {
	_ = j.ask(ctx, peerurl.HostPorts(m.PeerURLs), func(_ string, r transport.MemberList) error {
		id = r.ClusterID
		return nil
	})
	return id
}

// others returns the other members of the initial cluster.
func (j *Joiner) others() []memberdir.Member {
	return slices.DeleteFunc(slices.Clone(j.Owner.Cluster), func(m memberdir.Member) bool { return m.Name == j.Owner.Name })
}

// find returns the identity of the member in r that has this member's peer URLs.
func (j *Joiner) find(r transport.MemberList) (memberdir.Identity, error) {
	id := memberdir.Identity{ClusterID: r.ClusterID}
	if err := json.Unmarshal(r.Members, &id.Members); err != nil {
		return id, fmt.Errorf("decode the member list: %w", err)
	}
	urls := slices.Sorted(slices.Values(j.Owner.Self().PeerURLs))
	for _, m := range id.Members {
		if !slices.Equal(slices.Sorted(slices.Values(m.PeerURLs)), urls) {
			continue
		}
		if m.Instance != "" {
			return id, fmt.Errorf("%w: member %x has started before, with another data directory; %s", memberdir.ErrLost, m.ID, j.Advice(m.ID))
		}
		id.MemberID = m.ID
		return id, nil
	}
	return id, fmt.Errorf("%w with peer URLs %v: add it to the cluster first", ErrMemberNotFound, urls)
}

// ask requests the member list from all addresses at once, since one may hang. It calls use with each answer, one
// at a time, until use returns nil. If use never does, ask returns the errors of all addresses.
func (j *Joiner) ask(ctx context.Context, addrs []string, use func(addr string, r transport.MemberList) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		done bool
		errs = make([]error, len(addrs))
	)
	for i, addr := range addrs {
		wg.Go(func() {
			r, err := transport.FetchMemberList(ctx, j.Dial, addr)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !done {
				if err = use(addr, r); err == nil {
					done = true
					cancel()
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if done {
		return nil
	}
	if len(addrs) == 0 {
		return errors.New("no peer URL is known")
	}
	return errors.Join(errs...)
}
