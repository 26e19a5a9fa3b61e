package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// corrupt changes a key of a store without raft, at the index of the next entry. Committed
// entries may be applied at the same time.
func corrupt(t *testing.T, s *Server) {
	t.Helper()
	data, err := (&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("key"), Value: []byte("bad")}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	st := s.Node().Store()
	err = store.ErrStale
	for errors.Is(err, store.ErrStale) {
		err = st.Apply(st.Applied()+1, s.Node().Term(), data).Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The leader finds the member with different data, and its alarm stops writes until an operator
// disarms it.
func TestCorruptCheck(t *testing.T) {
	all := trio(t)
	lead, others := leader(t, all)
	c := client(t, lead)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	check := lead.hashChecker()
	check.check(t.Context())
	if alarms := lead.Node().Store().Alarms(); len(alarms) != 0 {
		t.Fatalf("alarms = %v in a sound cluster, want none", alarms)
	}
	corrupt(t, others[1])
	if _, err := c.Put(t.Context(), "other", "value"); err != nil {
		t.Fatal(err)
	}
	check.check(t.Context())
	alarms := lead.Node().Store().Alarms()
	if len(alarms) != 1 || alarms[0].GetAlarm() != pb.AlarmType_CORRUPT || alarms[0].GetMemberID() != others[1].Node().ID() {
		t.Fatalf("alarms = %v, want CORRUPT of %x", alarms, others[1].Node().ID())
	}
	if _, err := c.Put(t.Context(), "key", "value"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("Put() = %v under the alarm, want %v", err, rpctypes.ErrCorrupt)
	}
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Errorf("Put() = %v once it is disarmed, want nil", err)
	}
}

// again restarts a member at its addresses, without a new checkpoint.
func again(t *testing.T, s *Server, change func(*Config)) (*Server, error) {
	t.Helper()
	cfg := s.cfg
	cfg.Node.Listener, cfg.ClientListener, cfg.HTTPListener = nil, nil, nil
	change(&cfg)
	next, err := Start(cfg)
	if err == nil {
		t.Cleanup(func() { _ = next.Stop(context.Background()) })
	}
	return next, err
}

// A member with a checkpoint that differs from the others serves no requests, and ends with
// advice. A sound member serves, even if another one is corrupt.
func TestInitialCorruptCheck(t *testing.T) {
	all := trio(t, onePort)
	lead, others := leader(t, all)
	c := client(t, lead)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	bad, good := others[0], others[1]
	ask := func(c *Config) { c.InitialCorruptCheck = true }
	corrupt(t, bad)
	if _, err := c.Put(t.Context(), "other", "value"); err != nil { // the log comes to what the store has
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); bad.Node().Status().Commit < bad.Node().Store().Applied(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute has passed, want the log of the corrupt member to be as long as its store is new")
		}
	}
	if err := bad.Node().Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, bad)
	failed, err := again(t, bad, ask)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the corrupt member has ended", failed.Done())
	if err := failed.Err(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), bad.cfg.Node.Name+" (") || !strings.Contains(err.Error(), "member remove") {
		t.Errorf("Err() = %v, want %v with its name and the remedy", err, ErrCorrupt)
	}
	if failed.isReady() {
		t.Error("the corrupt member was ready")
	}
	stop(t, failed)

	// Without the check it serves, and most members agree that it is the bad one.
	unchecked, err := again(t, bad, func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the corrupt member is ready", unchecked.Ready())
	stop(t, good)
	last, err := again(t, good, ask)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a sound member beside a corrupt one is ready", last.Ready())
}

// A cluster can start all its members at once with the check.
func TestAllStartAtOnceWithTheCheck(t *testing.T) {
	all := trio(t, onePort, elects(time.Second))
	for _, s := range all {
		stop(t, s)
	}
	var next []*Server
	for _, s := range all {
		n, err := again(t, s, func(c *Config) { c.InitialCorruptCheck = true })
		if err != nil {
			t.Fatal(err)
		}
		next = append(next, n)
	}
	for _, s := range next {
		await(t, s.cfg.Node.Name+" is ready", s.Ready())
	}
	keepAlivesPass(t, next)
}

// restartWithTheCheck restarts a member with the check, waits for its end, and closes the gate
// again.
func restartWithTheCheck(t *testing.T) *Server {
	t.Helper()
	s := solo(t, onePort)
	stop(t, s)
	next, err := again(t, s, func(c *Config) { c.InitialCorruptCheck = true })
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member is ready", next.Ready())
	next.gate.close()
	return next
}

// beginRequests sends requests that wait for the gate, and returns channels for their errors.
func beginRequests(t *testing.T, s *Server) map[string]chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	conn := dial(t, s)
	ended := map[string]chan error{}
	for name, request := range map[string]func() error{
		"Put": func() error {
			_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
			return err
		},
		"Range": func() error {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
			return err
		},
		"Snapshot": func() error {
			stream, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		end := make(chan error, 1)
		ended[name] = end
		go func() { end <- request() }()
	}
	until(t, "all requests are there", func() bool { return s.openStreams() == int64(len(ended)) })
	return ended
}

// While a member compares its data, it answers the requests that other members need for theirs.
// Other requests wait, so that no write fails: clients do not repeat one.
func TestRequestsWaitForTheCheck(t *testing.T) {
	s := restartWithTheCheck(t)
	ended := beginRequests(t, s)
	c := client(t, s)
	if h, err := c.HashKV(t.Context(), s.ClientAddrs()[0], 0); err != nil || h.Hash == 0 {
		t.Errorf("HashKV() = %v, %v behind the gate, want a hash", h, err)
	}
	if got := health(t, s, "livez"); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of the process behind the gate = %v, want SERVING", got)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if code, body := page(t, s, path); code != want {
			t.Errorf("GET %s = %d %s behind the gate, want %d", path, code, body, want)
		}
	}
	for name, end := range ended {
		if len(end) > 0 {
			t.Errorf("%s = %v behind the gate, want it to wait", name, <-end)
		}
	}
	s.gate.open()
	for name, end := range ended {
		if err := <-end; err != nil {
			t.Errorf("%s = %v once the check is over, want nil", name, err)
		}
	}
}

// Requests that wait for the check do not delay a stop. They fail without effect.
func TestAStopEndsTheWaitForTheCheck(t *testing.T) {
	s := restartWithTheCheck(t)
	ended := beginRequests(t, s)
	stop(t, s)
	if s.drainTimedOut.Load() {
		t.Error("requests were cut, want them to end by themselves")
	}
	for name, end := range ended {
		if err := <-end; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), gateClosedText) {
			t.Errorf("%s = %v, want Unavailable: %s", name, err, gateClosedText)
		}
	}
}

// keepAlivesPass checks that TTL leases stay alive while members compare their data.
func keepAlivesPass(t *testing.T, all []*Server) {
	t.Helper()
	var lease *clientv3.LeaseGrantResponse
	granter := client(t, all[0])
	until(t, "a TTL lease is granted", func() (is bool) {
		var err error
		lease, err = granter.Grant(t.Context(), 60)
		return err == nil
	})
	for _, s := range all {
		s.gate.close()
	}
	for _, s := range all {
		stream, err := pb.NewLeaseClient(dial(t, s)).LeaseKeepAlive(t.Context())
		if err == nil {
			err = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)})
		}
		var got *pb.LeaseKeepAliveResponse
		if err == nil {
			got, err = stream.Recv()
		}
		if err != nil || got.GetTTL() != 60 {
			t.Errorf("a keep-alive by way of %s = %v, %v behind the gate, want 60 s", s.cfg.Node.Name, got, err)
		}
	}
	for _, s := range all {
		s.gate.open()
	}
}

// Members that compare their data need each other's HashKV. So requests that wait for the check
// take at most half of MaxInFlight and a limited number of bytes. Others are rejected.
func TestRequestsThatWaitForTheCheckAreBounded(t *testing.T) {
	s := solo(t, onePort)
	stop(t, s)
	next, err := again(t, s, func(c *Config) { c.InitialCorruptCheck, c.API.MaxInFlight = true, 4 })
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member is ready", next.Ready())
	next.gate.close()
	defer next.gate.open()
	kv := pb.NewKVClient(dial(t, next))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go func() { _, _ = kv.Put(ctx, &pb.PutRequest{Key: []byte("k")}) }()
	}
	until(t, "two requests wait", func() bool { return next.gate.waiting.Load() == 2 })
	if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k")}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "limits: 2 and 67108864") {
		t.Errorf("a third Put() = %v, want Unavailable that names the limits", err)
	}
	if h, err := client(t, next).HashKV(t.Context(), next.ClientAddrs()[0], 0); err != nil || h.Hash == 0 {
		t.Errorf("HashKV() = %v, %v beside requests that wait, want a hash", h, err)
	}
	next.gate.bytes.Add(maxWaitingBytes) // as if others waited
	cancel()
	until(t, "no request waits", func() bool { return next.gate.waiting.Load() == 0 })
	if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte("k")}); status.Code(err) != codes.Unavailable {
		t.Errorf("Put() where bytes are used up = %v, want Unavailable", err)
	}
}
