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

	"github.com/leaderlease/go/kvnode/store"
)

// corrupt changes a key of a store behind raft's back, in the place of the entry that comes next. What
// was committed may just be applied there.
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

// The leader finds the member whose data differs, and the alarm that it raises
// stops writes until somebody has looked.
func TestCorruptCheck(t *testing.T) {
	all := trio(t)
	lead, others := leader(t, all)
	c := client(t, lead)
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	check := lead.checked()
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

// again starts a member anew on its addresses, without a checkpoint of what it has.
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

// A member whose checkpoint holds other data than the others serves nobody, and
// ends with what to do; one that is sound serves, whoever else is not.
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

// A cluster that starts all at once with the check does start, and while a member
// compares it answers what the others need for theirs, and nothing else.
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
	next[0].shutter.down.Store(true)
	c := client(t, next[0])
	if h, err := c.HashKV(t.Context(), next[0].ClientAddrs()[0], 0); err != nil || h.Hash == 0 {
		t.Errorf("HashKV() = %v, %v behind the shutter, want a hash", h, err)
	}
	conn := dial(t, next[0])
	if _, err := pb.NewKVClient(conn).Range(t.Context(), &pb.RangeRequest{Key: []byte("k"), Serializable: true}); err == nil || !strings.Contains(err.Error(), checking) {
		t.Errorf("Range() = %v behind the shutter, want %q", err, checking)
	}
	stream, err := pb.NewMaintenanceClient(conn).Snapshot(t.Context(), &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), checking) {
		t.Errorf("Snapshot() = %v behind the shutter, want %q", err, checking)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if code, body := page(t, next[0], path); code != want {
			t.Errorf("GET %s = %d %s behind the shutter, want %d", path, code, body, want)
		}
	}
}

// keepAlivesPass checks that TTL leases live on while members compare, whoever leads
// meanwhile: it counts the time of them all.
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
		s.shutter.down.Store(true)
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
			t.Errorf("a keep-alive by way of %s = %v, %v behind the shutter, want 60 s", s.cfg.Node.Name, got, err)
		}
	}
	for _, s := range all {
		s.shutter.down.Store(false)
	}
}
