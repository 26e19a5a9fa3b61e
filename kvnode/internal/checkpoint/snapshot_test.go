package checkpoint

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// snapshotOf returns a checkpoint of the member, and its file.
func (m *member) snapshotOf() (at store.Checkpoint, file string) {
	m.t.Helper()
	if err := m.Make(); err != nil {
		m.t.Fatal(err)
	}
	state, err := m.store.OpenSnapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	defer state.Close()
	file = filepath.Join(m.t.TempDir(), "state")
	f, err := os.Create(file)
	if err != nil {
		m.t.Fatal(err)
	}
	_, err = state.WriteTo(f)
	if err := errors.Join(err, f.Close()); err != nil {
		m.t.Fatal(err)
	}
	return state.Checkpoint(), file
}

// receive has r receive the file as the state of a snapshot.
func receive(t *testing.T, r *Received, snap *raftpb.Snapshot, file string) error {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return r.Receive(&raftpb.Message{Snapshot: snap}, 1, f)
}

// A second snapshot with the index of the first does not replace its file, which the store may be restoring.
func TestASnapshotDoesNotReplaceItself(t *testing.T) {
	from, to := newMember(t, nil), newMember(t, nil)
	from.add(10, 1)
	at, file := from.snapshotOf()
	r := to.cfg.Received
	var first os.FileInfo
	for range 2 {
		if err := receive(t, r, at.Snapshot(), file); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(r.Path(at.Index))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		}
		if !os.SameFile(first, info) {
			t.Error("the second snapshot has replaced the file of the first")
		}
	}
}

// Receive refuses a state that is not the one of the message, and leaves no file.
func TestASnapshotWithAnotherState(t *testing.T) {
	from, to := newMember(t, nil), newMember(t, nil)
	from.add(10, 1)
	at, file := from.snapshotOf()
	snap := at.Snapshot()
	snap.Metadata.Index = new(at.Index + 1)
	if err := receive(t, to.cfg.Received, snap, file); err == nil {
		t.Errorf("Receive() of index %d with the state of index %d = nil, want an error", at.Index+1, at.Index)
	}
	if left, _ := filepath.Glob(filepath.Join(to.dir, "*"+partSuffix)); len(left) != 0 {
		t.Errorf("Receive() leaves %v, want no file", left)
	}
}

// A snapshot that is not newer than the store is read to its end, and not kept.
func TestASnapshotThatIsNotNewer(t *testing.T) {
	m := newMember(t, nil)
	at, file := m.snapshotOf()
	if err := receive(t, m.cfg.Received, at.Snapshot(), file); err != nil {
		t.Errorf("Receive() of the present index = %v, want nil", err)
	}
	if _, err := os.Stat(m.cfg.Received.Path(at.Index)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat() of its file = %v, want none", err)
	}
}

// After a snapshot that found no free space, Receive refuses others for MaxPause, and does not report them.
func TestReceivePausesOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reported := newMember(t, nil), 0
		m.cfg.Received.cfg.OnReceive = func() { reported++ }
		msg := &raftpb.Message{Snapshot: store.Checkpoint{Index: 99, Term: 9}.Snapshot()}
		for _, step := range []struct {
			wait time.Duration
			read bool
		}{{0, true}, {MaxPause / 2, false}, {MaxPause, true}} {
			time.Sleep(step.wait)
			err := m.cfg.Received.Receive(msg, 1, iotest.ErrReader(syscall.ENOSPC))
			if err == nil || IsNoSpace(err) != step.read {
				t.Errorf("Receive() %v later = %v, want that it reads the state: %v", step.wait, err, step.read)
			}
		}
		if reported != 2 {
			t.Errorf("OnReceive was called %d times, want 2", reported)
		}
	})
}

// A checkpoint removes the snapshots up to its index, and those that were received in part. It leaves
// newer ones, files of other programs, and the file that is being received.
func TestSnapshotFilesAreRemoved(t *testing.T) {
	m := newMember(t, nil)
	r := m.cfg.Received
	m.add(10, 1)
	at := m.store.Applied()
	in := func(name string) string { return filepath.Join(m.dir, name) }
	gone := []string{r.Path(1), r.Path(at), in("123" + partSuffix)}
	stay := []string{r.Path(at + 1), in("1.snap"), in("000000000000000A.snap"), in("mine.snap"), in("mine.part"), in("0000000000000002.snap.bak")}
	for _, path := range slices.Concat(gone, stay) {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Make(); err != nil {
		t.Fatal(err)
	}
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s exists after a checkpoint at %d, want it gone", path, at)
		}
	}
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s after a checkpoint at %d: %v, want it there", path, at, err)
		}
	}
	reading, writing := io.Pipe()
	received := make(chan error)
	go func() {
		received <- r.Receive(&raftpb.Message{Snapshot: store.Checkpoint{Index: 99}.Snapshot()}, 1, reading)
	}()
	_, _ = writing.Write([]byte("x"))
	r.RemoveUpTo(at)
	if left, _ := filepath.Glob(in("[0-9]*" + partSuffix)); len(left) != 1 {
		t.Errorf("Remove() during Receive() leaves %v, want the file that is being received", left)
	}
	_ = writing.Close()
	if err := <-received; err == nil {
		t.Error("Receive() of one byte = nil, want an error")
	}
	if _, ok := memberdir.SnapIndex(filepath.Base(r.Path(at))); !ok {
		t.Errorf("Path() = %s, want a name that SnapIndex knows", r.Path(at))
	}
}

// Raft learns the end of each snapshot. The configuration of a checkpoint contains the receiver, or
// raft would refuse it.
func TestSender(t *testing.T) {
	m := newMember(t, nil)
	if err := m.Make(); err != nil {
		t.Fatal(err)
	}
	old := m.store.Durable().Index
	m.write(1, 0)
	m.store.ApplyConf(old+1, 1, &raftpb.ConfState{Voters: []uint64{self, 2, 3}}, nil)
	m.loop.progress = map[uint64]tracker.Progress{2: {State: tracker.StateSnapshot, PendingSnapshot: old}, 3: {State: tracker.StateSnapshot, PendingSnapshot: old}}
	sent := make(chan *raftpb.Message, 1)
	s := NewSender(SenderConfig{
		Checkpointer: m.Checkpointer, PeerName: func(uint64) string { return "" }, Lifecycle: m.life, Logger: slog.New(slog.DiscardHandler),
		SendSnapshot: func(msg *raftpb.Message, state store.Snapshot) { sent <- msg; _ = state.Close() },
	})
	s.Send(&raftpb.Message{To: new(uint64(2))})
	if got := (<-sent).GetSnapshot().GetMetadata().GetIndex(); got != old {
		t.Errorf("Send() sends the checkpoint of %d, want %d", got, old)
	}
	s.Send(&raftpb.Message{To: new(uint64(3))})
	if got := (<-sent).GetSnapshot().GetMetadata(); got.GetIndex() != old+1 || !slices.Contains(got.GetConfState().GetVoters(), 3) {
		t.Errorf("Send() to a new member sends %v, want the configuration with it", got)
	}
	m.life.Wait()
	if n := m.slow.count.Load(); n != 2 {
		t.Errorf("%d followers are slow after two snapshots, want 2", n)
	}
	s.Report(2, nil)
	s.Report(3, io.ErrClosedPipe)
	if m.loop.reported[2] != raft.SnapshotFinish || m.loop.reported[3] != raft.SnapshotFailure {
		t.Errorf("raft was told %v, want that 2 has the snapshot and 3 has not", m.loop.reported)
	}
}
