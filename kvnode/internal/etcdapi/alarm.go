package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Alarm lists, raises or clears alarms. Listing is a linearizable read and, other
// than in etcd, leaves no entry in the log: health checks list alarms.
func (s *maintenanceServer) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.GetAction() != pb.AlarmRequest_GET {
		return propose[*pb.AlarmResponse](ctx, s.API, &pb.InternalRaftRequest{Alarm: r})
	}
	if err := s.mayRead(ctx, false); err != nil {
		return nil, err
	}
	resp := &pb.AlarmResponse{Header: s.header()}
	for _, m := range s.node.Store().Alarms() {
		if r.GetAlarm() == pb.AlarmType_NONE || r.GetAlarm() == m.GetAlarm() {
			resp.Alarms = append(resp.Alarms, m)
		}
	}
	return resp, nil
}
