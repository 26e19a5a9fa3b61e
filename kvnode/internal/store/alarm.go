package store

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func (st *state) raised(kind pb.AlarmType) bool {
	return slices.ContainsFunc(*st.alarms.Load(), func(m *pb.AlarmMember) bool { return m.GetAlarm() == kind })
}

// alarm raises, clears or lists alarms. The response holds those that the
// request is about, and is empty if it changes nothing that could be.
func (st *state) alarm(r *pb.AlarmRequest) *pb.AlarmResponse {
	resp := &pb.AlarmResponse{Header: &pb.ResponseHeader{Revision: st.revision.Load()}}
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
