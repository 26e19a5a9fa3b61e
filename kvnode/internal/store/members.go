package store

import (
	"cmp"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Member is one registered member of the cluster.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
	// Instance is a random identifier of a member's data directory. A member that returns with
	// another instance has lost its votes and its log.
	Instance string
}

// Members is the registry of members. It is immutable.
type Members struct {
	ByID    map[uint64]Member
	Removed map[uint64]bool
}

// MemberChange is the effect of a configuration change on the registry.
type MemberChange struct {
	// Set is the member that was added or promoted, or that has new peer URLs. A known member
	// keeps its name, client URLs and instance. Remove is the ID of a removed member.
	Set    *Member
	Remove uint64
	// ClusterVersion raises the cluster version. 0 leaves it.
	ClusterVersion int64
}

// register replaces the attributes that a member reports about itself.
func (m *Members) register(r *Member) (*Members, error) {
	known, ok := m.ByID[r.ID]
	if !ok {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	if known.Instance != "" && known.Instance != r.Instance {
		return nil, ErrInstance
	}
	known.Name = r.Name
	known.ClientURLs = slices.Clone(r.ClientURLs)
	known.Instance = r.Instance
	next := m.clone()
	next.ByID[r.ID] = known
	return next, nil
}

// Voters returns the IDs of the voters in ascending order.
func (m *Members) Voters() (ids []uint64) {
	for id, member := range m.ByID {
		if !member.Learner {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// change returns the registry after c.
func (m *Members) change(c *MemberChange) *Members {
	next := m.clone()
	if c.Remove != 0 {
		delete(next.ByID, c.Remove)
		next.Removed[c.Remove] = true
	}
	if c.Set == nil {
		return next
	}
	set := *c.Set
	set.PeerURLs = slices.Clone(set.PeerURLs)
	set.ClientURLs = slices.Clone(set.ClientURLs)
	if known, ok := m.ByID[set.ID]; ok {
		set.Name, set.ClientURLs, set.Instance = known.Name, known.ClientURLs, known.Instance
	}
	next.ByID[set.ID] = set
	// A member that is added again is not removed any more.
	delete(next.Removed, set.ID)
	return next
}

func (m *Members) clone() *Members {
	return &Members{ByID: maps.Clone(m.ByID), Removed: maps.Clone(m.Removed)}
}

func (st *state) raised(kind pb.AlarmType) bool {
	return slices.ContainsFunc(*st.alarms.Load(), func(m *pb.AlarmMember) bool { return m.GetAlarm() == kind })
}

// alarm activates, deactivates or lists alarms. The response holds the alarms of the request. It has
// none if the alarm to clear is not active. A request to list NONE lists all alarms.
func (st *state) alarm(r *pb.AlarmRequest) *pb.AlarmResponse {
	resp := &pb.AlarmResponse{Header: st.header()}
	have := *st.alarms.Load()
	this := &pb.AlarmMember{MemberID: r.GetMemberID(), Alarm: r.GetAlarm()}
	at, found := slices.BinarySearchFunc(have, this, compareAlarms)
	switch r.GetAction() {
	case pb.AlarmRequest_GET:
		for _, m := range have {
			if r.GetAlarm() == pb.AlarmType_NONE || r.GetAlarm() == m.GetAlarm() {
				resp.Alarms = append(resp.Alarms, m)
			}
		}
	case pb.AlarmRequest_ACTIVATE:
		if r.GetAlarm() == pb.AlarmType_NONE {
			break
		}
		resp.Alarms = []*pb.AlarmMember{this}
		if !found {
			next := slices.Insert(slices.Clone(have), at, this)
			st.alarms.Store(&next)
		}
	case pb.AlarmRequest_DEACTIVATE:
		if found {
			resp.Alarms = []*pb.AlarmMember{this}
			next := slices.Delete(slices.Clone(have), at, at+1)
			st.alarms.Store(&next)
		}
	}
	return resp
}

func compareAlarms(a, b *pb.AlarmMember) int {
	return cmp.Or(cmp.Compare(a.GetAlarm(), b.GetAlarm()), cmp.Compare(a.GetMemberID(), b.GetMemberID()))
}
