package wire

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

func TestEachStreamRenewsItsTTLLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	endpoint := serve(t)
	l, err := GrantTTLLeases(t.Context(), endpoint, 70)
	if err != nil {
		t.Fatal(err)
	}
	for _, streams := range []int{1, 8, 100} { // fewer and more than TTL leases
		enough := func(r *RenewResult) bool { return r.Renew.Done >= 10 && r.Renew.Failed == 0 || r.Wrong > 0 }
		r := measured(t, enough, func(times Times) (*RenewResult, error) { return l.Renew(t.Context(), endpoint, streams, times) })
		if r.Wrong+r.Renew.Failed > 0 || r.Renew.Done < 10 {
			t.Errorf("%d streams: %d done, %d wrong, failures %v", streams, r.Renew.Done, r.Wrong, r.Renew.Errors)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	// What was revoked is gone, which must show.
	if l.client, err = newClient(endpoint); err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*clientv3.Client{l.client})
	if r, err := l.Renew(t.Context(), endpoint, 1, Times{Duration: 20 * time.Millisecond}); err != nil || r.Wrong == 0 {
		t.Errorf("of %d keep-alives of revoked TTL leases %d are wrong, %v, want all", r.Renew.Done, r.Wrong, err)
	}
}

// tired answers keep-alives for the wrong TTL lease, or ends the stream.
type tired struct {
	pb.UnimplementedLeaseServer
	streams atomic.Int64
	ends    bool
}

func (s *tired) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	s.streams.Add(1)
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if s.ends {
			return errors.New("enough")
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{ID: r.GetID() + 1, TTL: 5}); err != nil {
			return err
		}
	}
}

func TestWrongAndMissingAnswersToKeepAlivesCount(t *testing.T) {
	for _, ends := range []bool{false, true} {
		s := &tired{ends: ends}
		endpoint := startFake(t, func(g *grpc.Server) { pb.RegisterLeaseServer(g, s) })
		l := &TTLLeases{ids: []int64{1, 2}}
		enough := func(r *RenewResult) bool { return r.Renew.Done > 0 || r.Renew.Failed > 1 && s.streams.Load() > 2 }
		r := measured(t, enough, func(times Times) (*RenewResult, error) { return l.Renew(t.Context(), endpoint, 2, times) })
		if !ends && (r.Wrong < r.Renew.Done || r.Renew.Done == 0 || r.Renew.Failed > 0) {
			t.Errorf("answers for another TTL lease: %d done, %d wrong, failures %v, want all wrong", r.Renew.Done, r.Wrong, r.Renew.Errors)
		}
		if ends && (r.Renew.Done > 0 || r.Renew.Failed < 2 || s.streams.Load() < 3) {
			t.Errorf("streams that end: %d done, failures %v on %d streams, want failures and new streams", r.Renew.Done, r.Renew.Errors, s.streams.Load())
		}
	}
}

func TestKeepAlivesNameWhatTheyLack(t *testing.T) {
	endpoint := lie(t, nil)
	if _, err := GrantTTLLeases(t.Context(), endpoint, 1); !errors.Is(err, ErrNoTTLLeases) {
		t.Errorf("GrantTTLLeases() = %v, want %v", err, ErrNoTTLLeases)
	}
}
