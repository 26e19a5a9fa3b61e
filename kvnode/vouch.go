package kvnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

// A member that was away may be called by one that was added meanwhile. What that one
// says of itself anybody can say, so it is let in only if somebody vouches for it: a
// member that this one knows, asked at an address where it is registered
// (docs/adr/0015-vouching.md).

// vouchPause is the least time between two rounds of questions. Shorter: strangers
// have members ask each other more often. Longer: a new member waits for longer, up to
// a round, at those who lag behind.
const vouchPause = time.Second

// vouchers are the members that others have named.
type vouchers struct {
	due chan struct{} // a token asks for a round
	mu  struct {
		sync.Mutex
		rosters map[string][]store.Member // the newest, by the address that was asked
	}
}

// peer returns what this member believes of another one. The registry comes first;
// what there was when this one began is for as long as the registry lags behind that;
// and then whoever was vouched for. The error is a *transport.Refusal.
func (n *Node) peer(id uint64) (store.Member, error) {
	members := n.store.Members()
	if members.Removed[id] {
		return store.Member{}, &transport.Refusal{Reason: transport.ReasonRemoved, Text: fmt.Sprintf("member %x was removed from the cluster", id)}
	}
	if m, ok := members.ByID[id]; ok {
		return m, nil
	}
	if i := slices.IndexFunc(n.id.Members, func(m store.Member) bool { return m.ID == id }); i >= 0 {
		return n.id.Members[i], nil
	}
	if m, ok := n.vouchers.named(id); ok {
		return m, nil
	}
	select {
	case n.vouchers.due <- struct{}{}:
	default:
	}
	return store.Member{}, &transport.Refusal{Reason: transport.ReasonUnknown, Text: fmt.Sprintf(
		"member %x is not known to %s (%x), which asks the members that it knows; if all of these were replaced while it was away, start %[2]s "+
			"with --initial-cluster naming the present ones, or remove it and add it anew", id, n.Name(), n.ID())}
}

// named returns a member as all rosters have it: they may be of different age, so its
// peer URLs are those of all.
func (v *vouchers) named(id uint64) (found store.Member, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, roster := range v.mu.rosters {
		for _, m := range roster {
			if m.ID != id {
				continue
			}
			m.PeerURLs = slices.Concat(found.PeerURLs, m.PeerURLs)
			m.Instance = or(m.Instance, found.Instance)
			found, ok = m, true
		}
	}
	slices.Sort(found.PeerURLs)
	found.PeerURLs = slices.Compact(found.PeerURLs)
	return found, ok
}

// vouch asks the others who is in the cluster each time that somebody calls whom this
// member does not know. One round is under way at a time.
func (n *Node) vouch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.vouchers.due:
		}
		pause := time.NewTimer(vouchPause)
		n.askRosters(ctx)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// askRosters asks all members that this one knows. Those whom only --initial-cluster
// names are asked if no majority of the voters is there: if one is, its members know
// who leads, or can elect a leader, and who has left the cluster has no say.
func (n *Node) askRosters(ctx context.Context) {
	known := n.knownMembers()
	voters, away := 0, 0
	for i, answered := range n.askAll(ctx, known) {
		if known[i].Learner {
			continue
		}
		voters++
		if !answered && known[i].ID != n.ID() {
			away++
		}
	}
	if voters-away <= voters/2 {
		var named []store.Member
		for _, m := range n.cfg.Cluster {
			if m.Name != n.Name() {
				named = append(named, store.Member{PeerURLs: m.PeerURLs})
			}
		}
		n.askAll(ctx, named)
		known = append(known, named...)
	}
	n.vouchers.keep(known)
}

// askAll asks all at once, and returns which have answered within an election timeout.
func (n *Node) askAll(ctx context.Context, members []store.Member) []bool {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ElectionTimeout)
	defer cancel()
	answered := make([]bool, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID != n.ID() {
			wg.Go(func() { answered[i] = n.askRoster(ctx, m.PeerURLs) })
		}
	}
	wg.Wait()
	return answered
}

// askRoster keeps the roster of whoever answers first at one of the URLs, and reports
// whether somebody of this cluster does.
func (n *Node) askRoster(ctx context.Context, peerURLs []string) bool {
	for _, addr := range hostPorts(peerURLs) {
		r, err := transport.Ask(ctx, n.cfg.Dial, addr)
		if err != nil || r.ClusterID != n.ClusterID() {
			continue
		}
		var roster []store.Member
		if json.Unmarshal(r.Members, &roster) == nil {
			n.vouchers.note(addr, roster)
			return true
		}
	}
	return false
}

func (v *vouchers) note(addr string, roster []store.Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.rosters == nil {
		v.mu.rosters = make(map[string][]store.Member)
	}
	v.mu.rosters[addr] = roster
}

// keep forgets what was said at addresses where none of the members is.
func (v *vouchers) keep(members []store.Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.mu.rosters, func(addr string, _ []store.Member) bool {
		return !slices.ContainsFunc(members, func(m store.Member) bool { return slices.Contains(hostPorts(m.PeerURLs), addr) })
	})
}

// knownMembers are the registry, and whoever was there when this member began and is
// not in it yet.
func (n *Node) knownMembers() []store.Member {
	members := n.store.Members()
	known := sortedMembers(members)
	for _, m := range n.id.Members {
		if _, ok := members.ByID[m.ID]; !ok && !members.Removed[m.ID] {
			known = append(known, m)
		}
	}
	return known
}
