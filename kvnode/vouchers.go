package kvnode

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/store"
)

// vouchers are the members that others have named.
type vouchers struct {
	due token // asks for a round
	mu  struct {
		sync.Mutex
		rosters map[string]roster // the newest, by the address that was asked
	}
}

// roster is who is in the cluster, as somebody says.
type roster struct {
	members []store.Member
	// applied is how far the registry is that says so; 0 is a former version, which
	// does not say.
	applied uint64
	flags   bool // Config.Cluster alone names who says so
}

// askAround has the others asked, soon, who is in the cluster and where.
func (v *vouchers) askAround() { v.due.put() }

// named returns a member as all rosters have it: they may be of different age, so its
// peer URLs are those of all. Rosters of registries that are no newer than this
// member's, which has applied so much, say nothing: what they have it has. One that
// does not say how old it is does not count about members that are registered, and
// those of whom Config.Cluster alone names do only with flags.
func (v *vouchers) named(id, applied uint64, registered, flags bool) (found store.Member, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.mu.rosters {
		if r.flags && !flags || r.applied <= applied && (r.applied > 0 || registered) {
			continue
		}
		for _, m := range r.members {
			if m.ID != id {
				continue
			}
			m.PeerURLs = slices.Concat(found.PeerURLs, m.PeerURLs)
			m.Instance = cmp.Or(m.Instance, found.Instance)
			found, ok = m, true
		}
	}
	slices.Sort(found.PeerURLs)
	found.PeerURLs = slices.Compact(found.PeerURLs)
	return found, ok
}

// flagged reports whether somebody whom Config.Cluster alone names says that a
// member is elsewhere than where it is registered.
func (v *vouchers) flagged(registered *store.Member) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.mu.rosters {
		if r.flags && slices.ContainsFunc(r.members, func(m store.Member) bool {
			return m.ID == registered.ID && !peerurl.AreAmong(m.PeerURLs, registered.PeerURLs)
		}) {
			return true
		}
	}
	return false
}

func (v *vouchers) note(addr string, r roster) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.rosters == nil {
		v.mu.rosters = make(map[string]roster)
	}
	v.mu.rosters[addr] = r
}

// keep forgets what was said at addresses where none of the members is.
func (v *vouchers) keep(members []store.Member) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.mu.rosters, func(addr string, _ roster) bool {
		return !slices.ContainsFunc(members, func(m store.Member) bool { return slices.Contains(peerurl.HostPorts(m.PeerURLs), addr) })
	})
}
