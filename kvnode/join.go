package kvnode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// roster lists the members for members that want to join or have been away. Any program that can connect may ask for
// it: an instance is an identifier and no secret.
func (p *parts) roster() (transport.Roster, error) {
	applied := p.store.Applied() // first: members may be newer than it says, not older
	members := p.store.Members()
	if len(members.ByID) == 0 {
		return transport.Roster{}, errors.New("this member does not know the others yet")
	}
	all := sortedMembers(members)
	for i := range all {
		all[i].ClientURLs = nil // nobody asks for them here, and a packet has a limit
	}
	data, err := json.Marshal(all)
	return transport.Roster{ClusterID: p.ClusterID(), From: p.ID(), Members: data, Applied: applied}, err
}

func sortedMembers(members *store.Members) []store.Member {
	byID := func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) }
	return slices.SortedFunc(maps.Values(members.ByID), byID)
}

// join returns who this member is in a cluster that exists: whoever added it
// named its peer URLs, and the members of the initial cluster know its ID.
func (c *Config) join() (id memberdir.Identity, err error) {
	err = c.askOthers(func(r transport.Roster) error {
		id, err = c.joinAs(r)
		return err
	})
	if err != nil {
		return memberdir.Identity{}, fmt.Errorf("join an existing cluster: %w", err)
	}
	return id, nil
}

// stillThere refuses the identity of a member that waits to be let in by a cluster
// that is not the one it is told to join: nobody would ever let it in. All others
// must be of another cluster, as admission has it: one alone may be the one
// that is wrong, and some may be about to start.
func (c *Config) stillThere(id *memberdir.Identity) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.ElectionTimeout)
	defer cancel()
	answers := make(chan uint64, len(c.Cluster)) // cluster IDs, 0 for no answer
	others := 0
	for _, m := range c.Cluster {
		if m.Name != c.Name {
			others++
			go func() { answers <- c.clusterOf(ctx, &m) }()
		}
	}
	var there uint64
	foreign := others > 0
	for range others {
		got := <-answers
		if got == 0 || got == id.ClusterID {
			foreign = false
		}
		there = got
	}
	if !foreign {
		return nil
	}
	return fmt.Errorf("%w: %s is of cluster %x, which this member never joined, but the one to join is %x; %s",
		ErrForeignCluster, c.dir().Path(memberdir.IdentityFile), id.ClusterID, there, startAnew)
}

// clusterOf asks a member for its cluster, and returns 0 if it does not say.
func (c *Config) clusterOf(ctx context.Context, m *Member) (id uint64) {
	_ = c.askFirst(ctx, peerurl.HostPorts(m.PeerURLs), func(_ string, r transport.Roster) error {
		id = r.ClusterID
		return nil
	})
	return id
}

// askOthers passes what the other members of the initial cluster say of their
// cluster to use, as they answer, until that returns nil.
func (c *Config) askOthers(use func(transport.Roster) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.RequestTimeout)
	defer cancel()
	var addrs []string
	for _, m := range c.Cluster {
		if m.Name != c.Name {
			addrs = append(addrs, peerurl.HostPorts(m.PeerURLs)...)
		}
	}
	if len(addrs) == 0 {
		return errors.New("the initial cluster has no other member to ask")
	}
	return c.askFirst(ctx, addrs, func(addr string, r transport.Roster) error {
		if err := use(r); err != nil {
			return fmt.Errorf("%s: %w", addr, err)
		}
		return nil
	})
}

// joinAs finds this member in a roster.
func (c *Config) joinAs(r transport.Roster) (memberdir.Identity, error) {
	id := memberdir.Identity{ClusterID: r.ClusterID}
	if err := json.Unmarshal(r.Members, &id.Members); err != nil {
		return id, fmt.Errorf("decode the roster: %w", err)
	}
	urls := slices.Sorted(slices.Values(c.self().PeerURLs))
	for _, m := range id.Members {
		if !slices.Equal(slices.Sorted(slices.Values(m.PeerURLs)), urls) {
			continue
		}
		if m.Instance != "" {
			return id, fmt.Errorf("%w: member %x has started before, with another data directory; %s", ErrLost, m.ID, c.beginAnew(m.ID))
		}
		id.MemberID = m.ID
		return id, nil
	}
	return id, fmt.Errorf("%w with peer URLs %v: add it to the cluster first", ErrMemberNotFound, urls)
}

// askFirst asks for the roster at all addresses at once, as one of them may hang, and
// passes what is said to use, one after the other until that returns nil. Its error is
// that of each address.
func (c *Config) askFirst(ctx context.Context, addrs []string, use func(addr string, r transport.Roster) error) error {
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
			r, err := transport.Ask(ctx, c.Dial, addr)
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
