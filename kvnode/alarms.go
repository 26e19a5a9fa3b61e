package kvnode

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// sayAlarms logs which alarms have been raised and disarmed since there were those
// before. Alarms are replicated, so each member says it. The applier, and who starts.
func (p *parts) sayAlarms(before []*pb.AlarmMember) {
	now := p.store.Alarms()
	for _, m := range now {
		if !hasAlarm(before, m) {
			p.log.Error("alarm raised", "type", m.GetAlarm().String(), "by", p.book.called(m.GetMemberID()))
		}
	}
	for _, m := range before {
		if !hasAlarm(now, m) {
			p.log.Info("alarm disarmed", "type", m.GetAlarm().String(), "of", p.book.called(m.GetMemberID()))
		}
	}
}

func hasAlarm(all []*pb.AlarmMember, m *pb.AlarmMember) bool {
	return slices.ContainsFunc(all, func(o *pb.AlarmMember) bool {
		return o.GetAlarm() == m.GetAlarm() && o.GetMemberID() == m.GetMemberID()
	})
}
