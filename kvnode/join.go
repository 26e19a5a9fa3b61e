package kvnode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// roster tells members that want to join who is there.
func (n *Node) roster() (transport.Roster, error) {
	members := n.store.Members()
	if len(members.ByID) == 0 {
		return transport.Roster{}, errors.New("this member does not know the others yet")
	}
	data, err := json.Marshal(sortedMembers(members))
	return transport.Roster{ClusterID: n.ClusterID(), Members: data}, err
}

func sortedMembers(members *store.Members) []store.Member {
	byID := func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) }
	return slices.SortedFunc(maps.Values(members.ByID), byID)
}

// join returns who this member is in a cluster that exists: whoever added it
// named its peer URLs, and the members of the initial cluster know its ID.
func (c *Config) join() (identity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.RequestTimeout)
	defer cancel()
	var errs []error
	for _, m := range c.Cluster {
		if m.Name == c.Name {
			continue
		}
		for _, addr := range hostPorts(m.PeerURLs) {
			r, err := transport.Ask(ctx, c.Dial, addr)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			id, err := c.joinAs(r)
			if err == nil {
				return id, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		}
	}
	return identity{}, fmt.Errorf("join an existing cluster: %w", errors.Join(errs...))
}

// joinAs finds this member in a roster.
func (c *Config) joinAs(r transport.Roster) (identity, error) {
	id := identity{ClusterID: r.ClusterID}
	if err := json.Unmarshal(r.Members, &id.Members); err != nil {
		return id, fmt.Errorf("decode the roster: %w", err)
	}
	urls := slices.Sorted(slices.Values(c.self().PeerURLs))
	for _, m := range id.Members {
		if !slices.Equal(slices.Sorted(slices.Values(m.PeerURLs)), urls) {
			continue
		}
		if m.Instance != "" {
			return id, fmt.Errorf("%w: member %x has started before, with another data directory; remove it and add it anew", ErrLost, m.ID)
		}
		id.MemberID = m.ID
		return id, nil
	}
	return id, fmt.Errorf("%w with peer URLs %v: add it to the cluster first", ErrMemberNotFound, urls)
}
