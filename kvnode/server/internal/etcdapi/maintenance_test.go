package etcdapi

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

func TestStatusDescribesTheMember(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	got, err := c.Status(t.Context(), "http://a")
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "Status", got.Header, 1)
	if got.Version != "3.7.0" || got.Leader != testMember || got.RaftTerm != testTerm || got.RaftIndex != 12 || got.RaftAppliedIndex != 11 ||
		got.DbSize == 0 || got.DbSizeQuota != DefaultQuotaBytes || got.IsLearner || len(got.Errors) != 0 {
		t.Errorf("Status = %v", got)
	}

	s.setLeader(0)
	raise := &pb.AlarmRequest{MemberID: testMember, Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT}
	if _, err := pb.NewMaintenanceClient(s.conn).Alarm(t.Context(), raise); err != nil {
		t.Fatal(err)
	}
	if got, err = c.Status(t.Context(), "http://a"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"etcdserver: no leader", "memberID:161 alarm:CORRUPT"}; !slices.Equal(got.Errors, want) {
		t.Errorf("Status without a leader and with an alarm has errors %q, want %q", got.Errors, want)
	}
}

func TestAlarmsAreRaisedListedAndCleared(t *testing.T) {
	s := startServer(t, Config{})
	m := pb.NewMaintenanceClient(s.conn)
	alarm := func(action pb.AlarmRequest_AlarmAction, kind pb.AlarmType) []*pb.AlarmMember {
		t.Helper()
		resp, err := m.Alarm(t.Context(), &pb.AlarmRequest{MemberID: testMember, Action: action, Alarm: kind})
		if err != nil {
			t.Fatal(err)
		}
		wantHeader(t, "Alarm", resp.GetHeader(), 1)
		return resp.GetAlarms()
	}
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE)
	before := s.proposals()
	if got := alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE); len(got) != 1 {
		t.Errorf("all alarms = %v, want one", got)
	}
	if got := alarm(pb.AlarmRequest_GET, pb.AlarmType_CORRUPT); len(got) != 0 {
		t.Errorf("CORRUPT alarms = %v, want none", got)
	}
	if got := s.proposals() - before; got != 0 {
		t.Errorf("listing alarms was proposed %d times", got)
	}
	wantStatus(t, "Put under the alarm", s.call(t.Context(), &pb.PutRequest{Key: []byte("k")}), rpctypes.ErrGRPCNoSpace)
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_NOSPACE)
	if got := alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE); len(got) != 0 {
		t.Errorf("alarms after clearing = %v", got)
	}
	s.put(t, "k", "v")
}

func TestHashesAreOfTheRevisionAskedFor(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	s.put(t, "k", "1")
	old, err := c.HashKV(t.Context(), "http://a", 0)
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "HashKV", old.Header, 2)
	s.put(t, "k", "2")
	again, err := c.HashKV(t.Context(), "http://a", 2)
	if err != nil {
		t.Fatal(err)
	}
	now, err := c.HashKV(t.Context(), "http://a", 0)
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash != old.Hash || now.Hash == old.Hash || again.HashRevision != 2 || now.HashRevision != 3 {
		t.Errorf("hash was %v, is %v as of revision 2, and %v now", old, again, now)
	}
	_, err = c.HashKV(t.Context(), "http://a", 99)
	wantStatus(t, "HashKV of the future", err, rpctypes.ErrGRPCFutureRev)
	if _, err := c.Compact(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	_, err = c.HashKV(t.Context(), "http://a", 2)
	wantStatus(t, "HashKV of the past", err, rpctypes.ErrGRPCCompacted)
	h, err := pb.NewMaintenanceClient(s.conn).Hash(t.Context(), &pb.HashRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "Hash", h.GetHeader(), 3)
}

func TestMoveLeaderIsForTheLeader(t *testing.T) {
	s := startServer(t, Config{})
	c := pb.NewMaintenanceClient(s.conn)
	two := &pb.MoveLeaderRequest{TargetID: 2}
	if _, err := c.MoveLeader(t.Context(), two); err != nil {
		t.Errorf("MoveLeader = %v", err)
	}
	s.moved = kvnode.ErrNotVoter
	_, err := c.MoveLeader(t.Context(), two)
	wantStatus(t, "MoveLeader to an unknown member", err, rpctypes.ErrGRPCBadLeaderTransferee)
	s.moved = kvnode.ErrTimeout
	_, err = c.MoveLeader(t.Context(), two)
	wantStatus(t, "MoveLeader in vain", err, rpctypes.ErrGRPCTimeout)
	s.setLeader(2)
	_, err = c.MoveLeader(t.Context(), two)
	wantStatus(t, "MoveLeader on a follower", err, rpctypes.ErrGRPCNotLeader)
}

// A snapshot has everything acknowledged, as a bbolt file followed by its SHA-256. Clients detect
// the checksum by the size.
func TestSnapshotIsAFileAndItsChecksum(t *testing.T) {
	s := startServer(t, Config{})
	s.put(t, "k", string(bytes.Repeat([]byte("v"), 300<<10)))
	r, err := s.client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(data)%512 != sha256.Size || len(data) < 300<<10 {
		t.Fatalf("snapshot of %d bytes, want a multiple of 512 and %d more", len(data), sha256.Size)
	}
	file, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(file); !bytes.Equal(got[:], sum) {
		t.Error("checksum is not the file's")
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatalf("the file is not a database: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	restored := openStore(t, openBolt(t))
	if err := restored.Restore(path); err != nil {
		t.Fatal(err)
	}
	if kv, _ := restored.Get([]byte("k")); len(kv.GetValue()) != 300<<10 {
		t.Error("the snapshot lacks what was acknowledged before it")
	}
}

// The remaining bytes in the messages count down to the checksum.
func TestSnapshotMessagesSayWhatRemains(t *testing.T) {
	s := startServer(t, Config{})
	stream, err := pb.NewMaintenanceClient(s.conn).Snapshot(t.Context(), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var sizes []uint64
	var remaining []uint64
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes, remaining = append(sizes, uint64(len(m.GetBlob()))), append(remaining, m.GetRemainingBytes())
		if m.GetVersion() != Version {
			t.Errorf("version = %q, want %q", m.GetVersion(), Version)
		}
	}
	last := len(sizes) - 1
	for i := 1; i < last; i++ {
		if remaining[i] != remaining[i-1]-sizes[i] {
			t.Errorf("message %d of %d bytes says %d remain, after %d", i, sizes[i], remaining[i], remaining[i-1])
		}
	}
	if remaining[last-1] != 0 || sizes[last] != sha256.Size {
		t.Errorf("before the checksum of %d bytes %d remain", sizes[last], remaining[last-1])
	}
}

// On a full disk, a defragmentation frees the space that the newest checkpoint does not use,
// which is enough for the next one.
func TestDefragmentMakesRoomForACheckpoint(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	var last int64
	for range 20 {
		last = s.put(t, "k", string(make([]byte, 100<<10))).GetHeader().GetRevision()
	}
	saved := s.Checkpoint(t.Context())
	if _, err := c.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(saved, s.store.FinishCompaction(t.Context()), s.Checkpoint(t.Context())); err != nil {
		t.Fatal(err)
	}
	before, _ := s.store.Size() // most of it is not in use
	s.onCheckpoint = func() error {
		if now, _ := s.store.Size(); now == before {
			return kvnode.ErrDiskFull
		}
		return nil
	}
	_, err := c.Defragment(t.Context(), "http://a")
	if after, _ := s.store.Size(); err != nil || after > before/5 {
		t.Errorf("Defragment without room for a checkpoint = %v, %d bytes before and %d after, want a fifth at most", err, before, after)
	}
	s.onCheckpoint = func() error { return kvnode.ErrDiskFull }
	if _, err := c.Defragment(t.Context(), "http://a"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("Defragment that makes no room = %v, want ErrNoSpace", err)
	}
}

func TestDefragmentWorksAndDowngradeDoesNot(t *testing.T) {
	s := startServer(t, Config{})
	got, err := s.client(t).Defragment(t.Context(), "http://a")
	if err != nil {
		t.Errorf("Defragment = %v", err)
	}
	if got.Header != nil {
		t.Errorf("the answer has the header %v, and etcd's, which scripts read as {}, has none", got.Header)
	}
	_, err = pb.NewMaintenanceClient(s.conn).Downgrade(t.Context(), &pb.DowngradeRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("Downgrade = %v, want Unimplemented", err)
	}
}

// remoteHash rejects the hash of any other member at the same address.
func TestRemoteHashChecksMember(t *testing.T) {
	p := startPair(t)
	p.leader.put(t, "key", "value")
	at := store.Member{ID: testMember, Name: "b", ClientURLs: []string{"http://gone:2379", "http://leader:2379"}}
	api := p.follower.api
	want, err := p.leader.store.HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := api.remoteHash(t.Context(), &at, 0); err != nil || h != want {
		t.Errorf("hashOf() = %+v, %v, want %+v", h, err, want)
	}
	if h, err := api.remoteHash(t.Context(), &at, 1); err != nil || h.HashRevision != 1 || h.Hash == want.Hash {
		t.Errorf("hashOf(revision 1) = %+v, %v, want another", h, err)
	}
	other := at
	other.ID = otherMember
	if h, err := api.remoteHash(t.Context(), &other, 0); err == nil || !strings.Contains(err.Error(), "lead to member a1, not b2") {
		t.Errorf("hashOf() = %+v, %v where another member answers, want it refused", h, err)
	}
	p.leader.foreign.Store(true)
	if h, err := api.remoteHash(t.Context(), &at, 0); !errors.Is(err, errNoMember) {
		t.Errorf("hashOf() = %+v, %v where another cluster answers, want it refused", h, err)
	}
	for _, urls := range [][]string{nil, {"unix://localhost:2379"}} {
		nowhere := store.Member{ID: testMember, ClientURLs: urls}
		if _, err := api.remoteHash(t.Context(), &nowhere, 0); !errors.Is(err, errNoMember) {
			t.Errorf("hashOf() = %v at %q, want that it has no address", err, urls)
		}
	}
}

// Hashers returns all members, this one first.
func TestHashers(t *testing.T) {
	p := startPair(t)
	all := p.follower.api.Hashers()
	if len(all) != 2 || all[0].ID != testMember || all[0].Name != "a" || all[1].ID != otherMember {
		t.Fatalf("Hashers() = %v, want this member and the other", all)
	}
	want, err := p.follower.store.HashKV(0)
	if h, failed := all[0].Hash(t.Context(), 0); err != nil || failed != nil || h != want {
		t.Errorf("Hash() of this member = %+v, %v, want %+v", h, failed, want)
	}
}
