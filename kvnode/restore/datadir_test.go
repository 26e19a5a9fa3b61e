package restore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal"
)

// Snapshot refuses a directory if its state or log is damaged, or if the two do not match,
// and a directory in use.
func TestRestoreRefusesADirectory(t *testing.T) {
	withMember(t, func(t *testing.T, m *member) {
		old := m.image()
		m.put("a", "b", "c", "d")
		m.checkpoint()
		m.put("e", "f", "g", "h", "i", "j")
		whole := m.image()
		cfg := restoreOf(t, "")
		for _, test := range []struct {
			name   string
			damage func(dir string) error
			want   string
		}{
			{"no identity", func(dir string) error { return os.Remove(filepath.Join(dir, memberdir.IdentityFile)) }, "holds no member.json"},
			{"another format", func(dir string) error { return edit(dir, `"format": 1`, `"format": 7`) }, "has format 7, this version reads 1"},
			{"damaged identity", func(dir string) error {
				return os.WriteFile(filepath.Join(dir, memberdir.IdentityFile), []byte("{"), 0o600)
			}, "member.json is damaged"},
			{"another directory's identity", func(dir string) error { return edit(dir, `"instance": "`, `"instance": "X`) }, "with another directory"},
			{"another cluster's identity", func(dir string) error { return edit(dir, fmt.Sprint(m.ID()), "12345") }, "of which the log knows nothing"},
			{"no log", func(dir string) error { return os.RemoveAll(filepath.Join(dir, memberdir.LogFolder)) }, "open the log in"},
			{"an empty log", func(dir string) error {
				return errors.Join(os.RemoveAll(filepath.Join(dir, memberdir.LogFolder)), beginEmpty(dir))
			}, "its log is empty"},
			{"a log that is cut off", func(dir string) error { return os.Truncate(firstSegment(dir), 4096) }, "is damaged"},
			{"a log from before", func(dir string) error {
				return swap(filepath.Join(dir, memberdir.LogFolder), filepath.Join(old, memberdir.LogFolder))
			}, "the log ends at"},
			{"no state", func(dir string) error { return os.Remove(filepath.Join(dir, memberdir.StateFile)) }, memberdir.StateFile},
			{"a damaged state", func(dir string) error {
				return os.WriteFile(filepath.Join(dir, memberdir.StateFile), make([]byte, 1<<16), 0o600)
			}, memberdir.StateFile},
		} {
			dir := filepath.Join(t.TempDir(), "dir")
			if err := errors.Join(os.CopyFS(dir, os.DirFS(whole)), test.damage(dir)); err != nil {
				t.Fatal(err)
			}
			cfg.File = dir
			_, err := Snapshot(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: Snapshot() = %v, want %q of %s", test.name, err, test.want, dir)
			}
			if _, err := Inspect(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: Inspect() = %v, want %q", test.name, err, test.want)
			}
			if _, err := os.Stat(cfg.DataDir); err == nil {
				t.Errorf("%s: the refusal has left a directory behind", test.name)
			}
		}
		into := cfg
		into.File, into.DataDir = whole, whole
		if _, err := Snapshot(into); err == nil || !strings.Contains(err.Error(), "must be empty or missing") {
			t.Errorf("Snapshot() into what is restored = %v, want that it must be empty", err)
		}
		cfg.File = m.cfg.DataDir
		if _, err := Snapshot(cfg); !errors.Is(err, raftwal.ErrLocked) || !strings.Contains(err.Error(), cfg.File) {
			t.Errorf("Snapshot() of a member that runs = %v, want ErrLocked", err)
		}
	})
}

// Several restores can read one directory at the same time. No member starts with it meanwhile.
func TestADirectoryThatIsReadIsNotRunWith(t *testing.T) {
	withMember(t, func(t *testing.T, m *member) {
		m.put("a")
		m.stop()
		dir := m.cfg.DataDir
		a, err := openStoppedMember(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := openStoppedMember(dir)
		if err != nil {
			t.Fatalf("openStoppedMember() beside another = %v, want both to read", err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := m.tryStart(); !errors.Is(err, raftwal.ErrLocked) {
			t.Errorf("Start() with a directory that is read = %v, want ErrLocked", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		m.start()
	})
}

// edit replaces a text in the identity of a directory.
func edit(dir, from, to string) error {
	path := filepath.Join(dir, memberdir.IdentityFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(data), from, to)
	if text == string(data) {
		return fmt.Errorf("%s does not hold %q", path, from)
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func swap(dir, from string) error {
	return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(from)))
}

func firstSegment(dir string) string {
	return filepath.Join(dir, memberdir.LogFolder, "0000000000000001.wal")
}

func beginEmpty(dir string) error {
	log, err := raftwal.Open(raftwal.Config{Dir: filepath.Join(dir, memberdir.LogFolder), SegmentSize: 1 << 20})
	if err != nil {
		return err
	}
	return log.Close()
}

// The log and the state are of different clusters, and the log has the state's index.
func TestRestoreRefusesTheLogOfAnotherTerm(t *testing.T) {
	var state []byte
	withMember(t, func(t *testing.T, m *member) {
		m.put("a", "b", "c", "d")
		m.stop()
		m.start()
		m.put("in a later term")
		m.checkpoint()
		state = readFile(t, filepath.Join(m.image(), memberdir.StateFile))
	})
	withMember(t, func(t *testing.T, m *member) {
		for range 40 {
			m.put("k")
		}
		dir := m.image()
		if err := os.WriteFile(filepath.Join(dir, memberdir.StateFile), state, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Snapshot(restoreOf(t, dir))
		if err == nil || !strings.Contains(err.Error(), "the log has that index in term") {
			t.Errorf("Snapshot() = %v, want it refused: the terms differ", err)
		}
	})
}

// The advice for a copied store.db says what it lacks, and what to restore instead.
func TestABareStoreIsCalledACheckpoint(t *testing.T) {
	withMember(t, func(t *testing.T, m *member) {
		file, dir := m.saved(), m.image()
		bare := filepath.Join(dir, memberdir.StateFile)
		alone := writeFile(t, readFile(t, bare))
		for path, want := range map[string]string{file: "", dir: "", "/nowhere": "", bare: "restore " + dir, alone: "restore DATA_DIR"} {
			if got := AdviseBareStore(path); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("AdviseBareStore(%s) = %q, want %q", path, got, want)
			}
		}
		_, err := Snapshot(restoreOf(t, bare))
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "restore "+dir) {
			t.Errorf("Snapshot(%s) = %v, want the better way", bare, err)
		}
	})
}

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

		d, err := openStoppedMember(m.image())
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
			"format":   {s.ClusterVersion(), want.ClusterVersion()},
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
		e, err := membership.NewClusterVersionEntry(&membership.ChangeContext{ClusterVersion: store.ClusterVersionNewest + 1})
		if err != nil {
			t.Fatal(err)
		}
		e.Index, e.Term = new(s.Applied()+1), new(m.Term())
		if err := applyOffline(s, e); err == nil || !strings.Contains(err.Error(), "start this member with the version of the others") || s.Applied() == e.GetIndex() {
			t.Errorf("applyOffline() of a newer format = %v at index %d, want it refused", err, s.Applied())
		}
	})
}
