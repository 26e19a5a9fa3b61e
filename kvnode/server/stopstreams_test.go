package server

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A stream that waits for the log, or for a leader, ends with Unavailable when its member stops, so
// that clients go on at another one. clientv3 gives up a watch that ends with Canceled.
func TestStreamsThatWaitEndWithUnavailable(t *testing.T) {
	all := trio(t)
	for _, s := range all {
		stop(t, s)
	}
	alone, err := again(t, all[0], func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := dial(t, alone)
	streams := map[string]func() (grpc.ClientStream, error){
		"Watch": func() (grpc.ClientStream, error) {
			s, err := pb.NewWatchClient(conn).Watch(ctx)
			if err != nil {
				return nil, err
			}
			return s, s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}})
		},
		"LeaseKeepAlive": func() (grpc.ClientStream, error) {
			s, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
			if err != nil {
				return nil, err
			}
			return s, s.Send(&pb.LeaseKeepAliveRequest{ID: 1})
		},
		"RangeStream": func() (grpc.ClientStream, error) {
			return pb.NewKVClient(conn).RangeStream(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		},
		"Snapshot": func() (grpc.ClientStream, error) {
			return pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
		},
	}
	ends := map[string]chan error{}
	for name, open := range streams {
		stream, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end := make(chan error, 1)
		ends[name] = end
		go func() { end <- stream.RecvMsg(new(pb.WatchResponse)) }()
	}
	until(t, "the member serves all streams", func() bool { return alone.openStreams() == int64(len(streams)) })
	time.Sleep(50 * time.Millisecond) // most of them wait by now; none must have ended
	stop(t, alone)
	for name, end := range ends {
		if err := <-end; status.Code(err) != codes.Unavailable {
			t.Errorf("%s ends with %v, want Unavailable", name, err)
		} else if known, is := rpctypes.Error(err).(rpctypes.EtcdError); is { //nolint:errorlint // as clientv3 does
			t.Errorf("%s ends with %v, after which KeepAliveOnce does not try again", name, known)
		}
	}
}
