package etcdapi

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode"
)

// Above the quota, writes that grow the store are rejected and the alarm is raised once. Reads
// and deletions continue, so that space can be freed.
func TestQuotaRefusesGrowthAndRaisesTheAlarm(t *testing.T) {
	s := startServer(t, Config{QuotaBytes: 1})
	before := s.proposals()
	for _, grow := range []any{
		&pb.PutRequest{Key: []byte("k")},
		&pb.PutRequest{}, // as in etcd, the quota comes first
		&pb.TxnRequest{Failure: ops(opTxn(nil, ops(opPut("k"))))},
	} {
		wantStatus(t, "growing beyond the quota", s.call(t.Context(), grow), rpctypes.ErrGRPCNoSpace)
	}
	if got := s.proposals() - before; got != 1 {
		t.Errorf("%d proposals, want one that raises the alarm", got)
	}
	if got := s.store.Alarms(); len(got) != 1 || got[0].GetAlarm() != pb.AlarmType_NOSPACE || got[0].GetMemberID() != testMember {
		t.Errorf("alarms = %v, want NOSPACE of this member", got)
	}
	for _, fine := range []any{
		&pb.RangeRequest{Key: []byte("k")},
		&pb.DeleteRangeRequest{Key: []byte("k")},
		&pb.TxnRequest{Success: ops(opDel("k", "z"))},
		&pb.CompactionRequest{Revision: 1},
	} {
		if err := s.call(t.Context(), fine); err != nil {
			t.Errorf("%T beyond the quota = %v", fine, err)
		}
	}
}

func TestQuotaComesInThreeKinds(t *testing.T) {
	for _, c := range []struct {
		name  string
		quota int64
		want  error
	}{
		{"default", 0, nil},
		{"none", -1, nil},
		{"small", 1, rpctypes.ErrGRPCNoSpace},
	} {
		s := startServer(t, Config{QuotaBytes: c.quota})
		wantStatus(t, "Put with quota "+c.name, s.call(t.Context(), &pb.PutRequest{Key: []byte("k")}), c.want)
	}
}

func TestCostIsThatOfTheExpensiveBranch(t *testing.T) {
	small, large := opPut("k"), opPut("kkk")
	for _, c := range []struct {
		name string
		req  *pb.TxnRequest
		want int64
	}{
		{"nothing", &pb.TxnRequest{}, 0},
		{"reads and deletions", &pb.TxnRequest{Success: ops(opGet("k"), opDel("k", ""))}, 0},
		{"the first branch", &pb.TxnRequest{Success: ops(large), Failure: ops(small)}, 259},
		{"the second branch", &pb.TxnRequest{Success: ops(large), Failure: ops(small, small)}, 514},
		{"an inner one", &pb.TxnRequest{Success: ops(small, opTxn(ops(small), ops(large)))}, 516},
	} {
		if got := txnCost(c.req); got != c.want {
			t.Errorf("txnCost(%s) = %d, want %d", c.name, got, c.want)
		}
	}
}

// Data that no checkpoint has yet counts, too: the durable size alone would accept a burst.
func TestQuotaCountsWhatIsNotSaved(t *testing.T) {
	s := startServer(t, Config{QuotaBytes: 1 << 20})
	value := make([]byte, 100<<10)
	taken := 0
	for range 12 {
		if s.call(t.Context(), &pb.PutRequest{Key: []byte("k"), Value: value}) == nil {
			taken++
		}
	}
	if taken < 8 || taken > 10 {
		t.Errorf("%d puts of 100 KiB were taken with a quota of 1 MiB and no checkpoint, want 8 to 10", taken)
	}
	if total, _ := s.store.Size(); total > 256<<10 {
		t.Errorf("size = %d, want no checkpoint in between", total)
	}
	// The status explains the rejection.
	got, err := s.client(t).Status(t.Context(), "http://a")
	if err != nil || got.DbSize < got.DbSizeQuota-200<<10 || got.DbSize > got.DbSizeQuota || got.DbSizeInUse > got.DbSize || got.DbSizeInUse < 800<<10 {
		t.Errorf("Status of a full store = %d bytes, %d in use, quota %d, %v, want the first two just below the quota",
			got.DbSize, got.DbSizeInUse, got.DbSizeQuota, err)
	}
}

// A compaction followed by a defragmentation frees space, as etcd documents it.
func TestDefragmentationFreesCompactedSpace(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	var last int64
	for range 20 {
		last = s.put(t, "k", string(make([]byte, 100<<10))).GetHeader().GetRevision()
	}
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _ := s.store.Size()
	if _, err := c.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Defragment(t.Context(), "http://a"); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.store.Size(); before < 2_000_000 || after > before/5 {
		t.Errorf("size = %d before and %d after, want 2 MB to become 0.1", before, after)
	}
}

// A physical compaction returns when the space is free.
func TestAPhysicalCompactionHasFreedBeforeItReturns(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	inUse := func() int64 {
		got, err := c.Status(t.Context(), "http://a")
		if err != nil {
			t.Fatal(err)
		}
		return got.DbSizeInUse
	}
	var last int64
	for range 20 {
		last = s.put(t, "k", string(make([]byte, 100<<10))).GetHeader().GetRevision()
	}
	if err := s.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	if _, err := c.Compact(t.Context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if after := inUse(); before < 2_000_000 || after > before/5 {
		t.Errorf("%d bytes in use before and %d after, want 2 MB to become 0.1", before, after)
	}
}

// Without disk space for a checkpoint a physical compaction succeeds, because it cannot be
// repeated. The client then continues with the defragmentation, which frees space.
func TestAPhysicalCompactionWithoutRoomHasCompacted(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	var last int64
	for range 3 {
		last = s.put(t, "k", "v").GetHeader().GetRevision()
	}
	s.onCheckpoint = func() error { return kvnode.ErrDiskFull }
	if _, err := c.Compact(t.Context(), last-1, clientv3.WithCompactPhysical()); err != nil || s.store.CompactRevision() != last-1 {
		t.Errorf("Compact() = %v without room for a checkpoint, compacted at %d, want nil and %d", err, s.store.CompactRevision(), last-1)
	}
	s.onCheckpoint = func() error { return kvnode.ErrStopped }
	if _, err := c.Compact(t.Context(), last, clientv3.WithCompactPhysical()); err == nil {
		t.Error("Compact() = nil on a member that stops, want an error")
	}
}
