package server

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/kvnode/server/status"
)

// A full store is repaired as etcd documents it: delete, compact, defragment, disarm.
func TestAFullStoreIsBroughtBack(t *testing.T) {
	s := solo(t, func(c *Config) { c.API.QuotaBytes = 2 << 20 })
	c := client(t, s)
	ctx, value := t.Context(), strings.Repeat("x", 100<<10)
	full := func(key string) error { _, err := c.Put(ctx, key, value); return err }
	err := full("a")
	for i := 1; i < 40 && err == nil; i++ {
		err = full(string(rune('a' + i)))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("4 MB into a store with a quota of 2 MiB = %v, want ErrNoSpace", err)
	}
	signsOfAFullStore(t, s, c)
	if got, err := c.Get(ctx, "a"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("Get of a full store = %v, %v, want it served", got, err)
	}
	// Disarming alone does not help.
	disarm(t, c)
	if err := full("again"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Put after no more than a disarm = %v, want ErrNoSpace", err)
	}
	deleted, err := c.Delete(ctx, "a", clientv3.WithFromKey())
	if err != nil {
		t.Fatalf("Delete in a full store: %v", err)
	}
	if _, err := c.Compact(ctx, deleted.Header.GetRevision()); err != nil {
		t.Fatalf("Compact in a full store: %v", err)
	}
	if _, err := c.Defragment(ctx, c.Endpoints()[0]); err != nil {
		t.Fatalf("Defragment: %v", err)
	}
	if err := full("armed"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Put with room and the alarm = %v, want ErrNoSpace until it is disarmed", err)
	}
	disarm(t, c)
	for range 10 {
		err = errors.Join(err, full("after"))
	}
	if err != nil {
		t.Fatalf("Put with room again: %v", err)
	}
}

// signsOfAFullStore expects a quota of 2 MiB and the alarm. No checkpoint was made yet, and still
// the sizes show the reason.
func signsOfAFullStore(t *testing.T, s *Server, c *clientv3.Client) {
	t.Helper()
	alarms, err := c.AlarmList(t.Context())
	if err != nil || len(alarms.Alarms) != 1 || alarms.Alarms[0].GetMemberID() != s.Node().ID() {
		t.Fatalf("AlarmList() = %v, %v, want NOSPACE of this member", alarms, err)
	}
	size, inUse, quota := metric(t, s, "kvnode_db_size_bytes"), metric(t, s, "kvnode_db_in_use_bytes"), metric(t, s, "kvnode_db_quota_bytes")
	if quota != 2<<20 || size > quota || size < quota-(200<<10) || inUse > size || inUse < quota-(300<<10) {
		t.Errorf("metrics of a full store: size %v, in use %v, quota %v, want the first two just below 2 MiB", size, inUse, quota)
	}
}

func disarm(t *testing.T, c *clientv3.Client) {
	t.Helper()
	if _, err := c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatalf("AlarmDisarm: %v", err)
	}
}

// A snapshot saved by clientv3 starts a new cluster with other members, from which a client
// reads.
func TestSaveAndRestore(t *testing.T) {
	skipShort(t)
	old := trio(t)
	c := client(t, old...)
	lease, err := c.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	put, err := c.Put(t.Context(), "key", "value", clientv3.WithLease(lease.ID))
	saver := client(t, old[0])
	// A backup is of what its member has applied, as in etcd: a read sees to it.
	_, readErr := saver.Get(t.Context(), "key")
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	file := saveFile(t, saver)

	restored := trio(t, func(c *Config) {
		c.Node.DataDir = filepath.Join(c.Node.DataDir, "restored")
		if _, err := restore.Snapshot(restore.Config{
			File: file, Name: c.Node.Name, DataDir: c.Node.DataDir, Cluster: c.Node.Cluster, PeerURLs: []string{listenerURL(c.Node.Listener, "")},
		}); err != nil {
			t.Fatal(err)
		}
	})
	c = client(t, restored...)
	got, err := c.Get(t.Context(), "key")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("Get of the restored cluster = %v, %v, want the key", got, err)
	}
	if kv := got.Kvs[0]; kv.GetModRevision() != put.Header.GetRevision() || kv.GetLease() != int64(lease.ID) {
		t.Errorf("the restored cluster has %v, want it at revision %d with its lease", kv, put.Header.GetRevision())
	}
	checkApart(t, c, old, put.Header.GetClusterId())
	if ttl, err := c.TimeToLive(t.Context(), lease.ID); err != nil || ttl.TTL <= 0 {
		t.Errorf("TimeToLive of the restored lease = %v, %v, want some", ttl, err)
	}
	if _, err := c.Put(t.Context(), "key", "new"); err != nil {
		t.Errorf("Put: %v", err)
	}
}

// checkApart expects a restored cluster to have another ID and other members than the old one.
func checkApart(t *testing.T, c *clientv3.Client, old []*Server, id uint64) {
	t.Helper()
	members, err := c.MemberList(t.Context())
	if err != nil || len(members.Members) != 3 {
		t.Fatalf("MemberList() = %v, %v, want three", members, err)
	}
	for _, m := range members.Members {
		if slices.ContainsFunc(old, func(s *Server) bool { return m.GetPeerURLs()[0] == s.cfg.ListenPeerURLs[0] }) {
			t.Errorf("member %x is at the old %v", m.GetID(), m.GetPeerURLs())
		}
	}
	if members.Header.GetClusterId() == id {
		t.Errorf("the restored cluster has the old one's ID %x", id)
	}
}

// metric returns the value of a gauge without labels.
func metric(t *testing.T, s *Server, name string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Errorf("there is no metric %s", name)
	return 0
}

func saveFile(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	stream, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, stream)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// History is compacted automatically, and the newest values stay.
func TestAutoCompaction(t *testing.T) {
	s := solo(t, func(c *Config) { c.AutoCompactionRetention = "100ms" })
	c := client(t, s)
	first, err := c.Put(t.Context(), "key", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "key", "2"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := c.Get(ctx, "key", clientv3.WithRev(first.Header.GetRevision()))
		if errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
		if err != nil {
			t.Fatalf("Get as of the first revision = %v, want it compacted in the end", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got, err := c.Get(ctx, "key"); err != nil || string(got.Kvs[0].GetValue()) != "2" {
		t.Errorf("Get = %v, %v, want 2", got, err)
	}
}

// Metrics about failures exist before the first failure.
func TestMetricsOfTrouble(t *testing.T) {
	all := trio(t)
	if err := all[0].Node().Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	connected := "\nkvnode_transport_connected{peer=\"" + status.ID(all[1].Node().ID()) + "\",stream=\"control\"} 1\n"
	body := ""
	until(t, "the first member is connected to the second", func() bool { // of three, it was ready without
		_, body = page(t, all[0], "/metrics")
		return strings.Contains(body, connected)
	})
	for _, want := range []string{
		"\nkvnode_checkpoint_seconds_count 1\n", "\nkvnode_checkpoint_failures_total 0\n",
		"\nkvnode_proposals_failed_total ", "\nkvnode_proposals_voided_total ", "\nkvnode_db_unsaved_bytes ", "\nkvnode_transport_sent_messages_total{",
		"\nkvnode_transport_round_trip_seconds{peer=\"" + status.ID(all[1].Node().ID()) + "\"} ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %q", want)
		}
	}
	if took := value(body, "kvnode_checkpoint_max_seconds"); took <= 0 {
		t.Errorf("kvnode_checkpoint_max_seconds is %v, want how long the checkpoint took", took)
	}
}

// Each metric of peers exists once.
func TestNoMetricOfPeersTwice(t *testing.T) {
	families, err := trio(t)[0].registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, f := range families {
		ofPeers := false
		for _, l := range f.GetMetric()[0].GetLabel() {
			ofPeers = ofPeers || l.GetName() == "peer"
		}
		if !ofPeers {
			continue
		}
		// The first word is the program, the second the part.
		figure := strings.SplitN(f.GetName(), "_", 3)[2]
		if other, ok := seen[figure]; ok {
			t.Errorf("%s and %s are one figure", other, f.GetName())
		}
		seen[figure] = f.GetName()
	}
	if len(seen) < 10 {
		t.Errorf("%d metrics of peers, want those of the transport", len(seen))
	}
}

// --strict-reconfig-check=false allows a cluster to grow while members are down.
func TestLaxReconfiguration(t *testing.T) {
	skipShort(t)
	for _, lax := range []bool{false, true} {
		all := trio(t, func(c *Config) { c.Node.LaxReconfig = lax })
		first, others := leader(t, all)
		gone := others[0].Node().ID()
		for !first.knowsNames() { // a member without a name has not started, as far as the leader knows
			time.Sleep(10 * time.Millisecond)
		}
		stop(t, others[0])
		for first.connected(gone) { // the leader hears of it with its next heartbeat
			time.Sleep(10 * time.Millisecond)
		}
		_, err := first.Node().AddMember(t.Context(), []string{"http://127.0.0.1:1"}, false)
		if lax && err != nil || !lax && !errors.Is(err, kvnode.ErrUnhealthy) {
			t.Errorf("AddMember with one of three down, lax %v = %v", lax, err)
		}
	}
}

// knowsNames reports whether all members have published their names here.
func (s *Server) knowsNames() bool {
	for _, m := range s.node.Store().Members().ByID {
		if m.Name == "" {
			return false
		}
	}
	return true
}

func (s *Server) connected(id uint64) bool {
	for _, p := range s.node.Status().Peers {
		if p.ID == id {
			return p.Connected
		}
	}
	return false
}

// WatchProgressInterval reaches the watchers.
func TestWatchProgressInterval(t *testing.T) {
	s := solo(t, func(c *Config) { c.API.WatchProgressInterval = 100 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for r := range client(t, s).Watch(ctx, "key", clientv3.WithProgressNotify()) {
		if r.IsProgressNotify() {
			return
		}
	}
	t.Error("a watcher heard nothing in a minute, want how far it is every 100ms")
}

// With TTLCheckpoint the remaining time of TTL leases is replicated.
func TestTTLCheckpoints(t *testing.T) {
	s := solo(t, func(c *Config) { c.Node.TTLCheckpoint = time.Second })
	if _, err := client(t, s).Grant(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		_, body := page(t, s, "/metrics")
		if strings.Contains(body, "\nkvnode_ttl_checkpoints_total ") && !strings.Contains(body, "\nkvnode_ttl_checkpoints_total 0\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("kvnode_ttl_checkpoints_total is 0 after a minute, want a checkpoint each second")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
