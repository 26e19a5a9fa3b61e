package restore

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// A replay makes the same state from the log as a member that runs.
func TestARestoreAppliesAsAMemberDoes(t *testing.T) {
	withMember(t, func(t *testing.T, m *member) {
		propose := func(r *pb.InternalRaftRequest) { _, _ = m.Propose(t.Context(), r) }
		propose(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 7, TTL: 600}})
		propose(&pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 8, TTL: 600}})
		for i := range 20 {
			propose(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: fmt.Append(nil, "k", i%5), Value: fmt.Append(nil, i), Lease: int64(7 + i%2)}})
		}
		propose(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 8}})
		propose(&pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 9}})
		propose(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: m.ID(), Alarm: pb.AlarmType_CORRUPT}})
		m4, err := m.AddMember(t.Context(), []string{"http://m4:2380"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.UpdateMember(t.Context(), m4.ID, []string{"http://m5:2380"}); err != nil {
			t.Fatal(err)
		}
		if err := m.RemoveMember(t.Context(), m4.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := m.AddMember(t.Context(), []string{"http://m6:2380"}, true); err != nil {
			t.Fatal(err)
		}

		d, err := openMemberDir(m.image())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "copy")
		if _, err := d.copyTo(path); err != nil {
			t.Fatal(err)
		}
		backend, err := boltdb.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(store.Config{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		want := m.Store()
		for what, pair := range map[string][2]any{
			"applied":  {s.Applied(), want.Applied()},
			"revision": {s.Revision(), want.Revision()},
			"members":  {s.Members(), want.Members()},
			"format":   {s.Format(), want.Format()},
			"compact":  {s.CompactRevision(), want.CompactRevision()},
			"alarms":   {len(s.Alarms()), len(want.Alarms())},
			"hash":     {hashOf(t, s), hashOf(t, want)},
		} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("%s = %+v, want the member's %+v", what, pair[0], pair[1])
			}
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

func hashOf(t *testing.T, s *store.Store) store.Hash {
	t.Helper()
	h, err := s.HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// This version cannot apply what a newer version wrote, so the replay fails.
func TestRestoreStopsAtANewerFormat(t *testing.T) {
	withMember(t, func(t *testing.T, m *member) {
		m.stop()
		s := m.Store()
		e, err := confchange.NewFormatEntry(&confchange.Context{Format: store.FormatNewest + 1})
		if err != nil {
			t.Fatal(err)
		}
		e.Index, e.Term = new(s.Applied()+1), new(m.Term())
		if err := applyOffline(s, e); err == nil || !strings.Contains(err.Error(), "start this member with the version of the others") || s.Applied() == e.GetIndex() {
			t.Errorf("applyOffline() of a newer format = %v at index %d, want it refused", err, s.Applied())
		}
	})
}
