package checkpoint

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	self    = 1
	segment = 256 << 10
)

// fakeLoop runs functions on the goroutine of the test, with itself as raft. The member leads.
type fakeLoop struct {
	progress map[uint64]tracker.Progress
	reported map[uint64]raft.SnapshotStatus
}

func (l *fakeLoop) Do(f func(Raft)) bool { f(l); return true }
func (l *fakeLoop) Push(f func(Raft))    { f(l) }

func (l *fakeLoop) BasicStatus() (s raft.BasicStatus) {
	s.RaftState = raft.StateLeader
	return s
}

func (l *fakeLoop) WithProgress(visit func(id uint64, typ raft.ProgressType, pr tracker.Progress)) {
	for id, pr := range l.progress {
		visit(id, raft.ProgressTypePeer, pr)
	}
}

func (l *fakeLoop) ReportSnapshot(id uint64, status raft.SnapshotStatus) { l.reported[id] = status }

// fullBackend is a backend on a disk that may be full.
type fullBackend struct {
	store.Backend
	full   atomic.Bool
	tried  atomic.Int64
	before func() // a commit; nil for nothing
}

func (b *fullBackend) Update(fn func(store.Tx) error) error {
	b.tried.Add(1)
	if b.before != nil {
		b.before()
	}
	if b.full.Load() {
		return syscall.ENOSPC
	}
	return b.Backend.Update(fn)
}

// member is a Checkpointer and what it uses.
type member struct {
	*Checkpointer
	t       *testing.T
	dir     string
	backend fullBackend
	log     *raftwal.Log
	store   *store.Store
	loop    fakeLoop
	life    *lifecycle.Lifecycle
	applied uint64 // as raft knows it; all if 0
}

func newMember(t *testing.T, amend func(*Config)) *member {
	t.Helper()
	m := &member{t: t, dir: t.TempDir(), loop: fakeLoop{reported: make(map[uint64]raft.SnapshotStatus)}}
	logger := slog.New(slog.DiscardHandler)
	m.life = lifecycle.New(logger)
	var err error
	if m.log, err = raftwal.Open(raftwal.Config{Dir: "log", FS: fs.NewMemory(), SegmentSize: segment}); err != nil {
		t.Fatal(err)
	}
	if m.backend.Backend, err = boltdb.Open(filepath.Join(m.dir, "store.db")); err != nil {
		t.Fatal(err)
	}
	if m.store, err = store.Open(store.Config{Backend: &m.backend}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.store.Close(), m.log.Close()); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{
		Self: self, Log: m.log, Store: m.store, Loop: &m.loop, Lifecycle: m.life, Logger: logger, SnapshotCount: 1 << 20,
		Received: NewReceived(ReceivedConfig{
			Dir: m.dir, Store: m.store, OnReceive: func() {}, PeerName: func(uint64) string { return "" }, Logger: logger,
		}),
		Disk: NewDisk(DiskConfig{
			Dir: m.dir, Log: m.log, StallTicks: 10, OnStall: func(bool) {}, Lifecycle: m.life, Logger: logger,
		}),
		RaftApplied: func() uint64 {
			if m.applied != 0 {
				return m.applied
			}
			return m.store.Applied()
		},
		Connected: func() map[uint64]bool { return map[uint64]bool{2: true, 3: false, 4: true} },
	}
	if amend != nil {
		amend(&cfg)
	}
	m.Checkpointer = New(cfg)
	m.write(1, 0)
	m.store.ApplyConf(1, 1, &raftpb.ConfState{Voters: []uint64{self, 2}}, nil)
	return m
}

// write appends n entries of that size to the log.
func (m *member) write(n, size int) {
	m.t.Helper()
	last, err := m.log.LastIndex()
	for i := range uint64(n) {
		e := &raftpb.Entry{Term: new(uint64(1)), Index: new(last + i + 1), Data: make([]byte, size)}
		err = errors.Join(err, m.log.Save([]*raftpb.Entry{e}, nil, nil))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// add appends n entries to the log, and applies them to the store, where they do nothing.
func (m *member) add(n, size int) {
	m.t.Helper()
	m.write(n, size)
	for range n {
		m.store.Apply(m.store.Applied()+1, 1, nil)
	}
}

func (m *member) firstIndex() uint64 {
	m.t.Helper()
	first, err := m.log.FirstIndex()
	if err != nil {
		m.t.Fatal(err)
	}
	return first
}

// The log has the index of a checkpoint as committed before the store is durable at it. After a crash in
// between raft would panic: more is applied than committed.
func TestTheLogKnowsTheCommitBeforeTheStore(t *testing.T) {
	m := newMember(t, nil)
	m.add(100, 10)
	commits := 0
	m.backend.before = func() {
		commits++
		hard, _, err := m.log.InitialState()
		if err != nil || hard.GetCommit() < m.store.Applied() {
			t.Errorf("the store commits index %d, and the log has commit index %d (%v)", m.store.Applied(), hard.GetCommit(), err)
		}
	}
	if err := m.Make(); err != nil || commits == 0 {
		t.Errorf("Make() = %v after %d commits of the store, want nil after some", err, commits)
	}
}

// A checkpoint truncates the log, but leaves what followers may need.
func TestACheckpointTruncatesTheLog(t *testing.T) {
	const size = 1 << 10
	for _, tt := range []struct {
		name      string
		amend     func(*Config)
		progress  tracker.Progress // of member 2
		applied   uint64           // as raft knows it
		slow      bool             // member 2 was sent a snapshot
		wantFirst uint64
	}{
		{name: "all", wantFirst: 102},
		{name: "all but CatchUpEntries", amend: func(c *Config) { c.CatchUpEntries = 10 }, wantFirst: 92},
		{name: "raft does not know that all is applied", applied: 50, wantFirst: 51},
		{name: "a follower has a part", progress: tracker.Progress{State: tracker.StateReplicate, Match: 60}, wantFirst: 102},
		{name: "a slow follower is sent a snapshot", slow: true, progress: tracker.Progress{State: tracker.StateSnapshot, PendingSnapshot: 60}, wantFirst: 61},
		{name: "a slow follower restores it", slow: true, progress: tracker.Progress{State: tracker.StateProbe, Next: 61}, wantFirst: 61},
		{name: "a slow follower catches up", slow: true, progress: tracker.Progress{State: tracker.StateReplicate, Match: 60}, wantFirst: 61},
		{name: "a slow follower has caught up", slow: true, progress: tracker.Progress{State: tracker.StateReplicate, Match: 101}, wantFirst: 102},
		{
			name: "a slow follower costs more than another snapshot", slow: true, amend: func(c *Config) { c.MaxKeptBytes = 1 },
			progress: tracker.Progress{State: tracker.StateReplicate, Match: 60}, wantFirst: 102,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMember(t, tt.amend)
			m.loop.progress = map[uint64]tracker.Progress{2: tt.progress}
			if tt.slow {
				m.slow.add(2, m.log.Stats().Bytes)
			}
			m.add(100, size)
			m.applied = tt.applied
			if err := m.Make(); err != nil {
				t.Fatal(err)
			}
			if got := m.firstIndex(); got != tt.wantFirst {
				t.Errorf("after Make() at %d, the log begins at %d, want %d", m.store.Applied(), got, tt.wantFirst)
			}
			if at := m.store.Durable().Index; at != m.store.Applied() {
				t.Errorf("after Make(), the store is durable at %d, want %d", at, m.store.Applied())
			}
		})
	}
}

// No two members make a checkpoint at the same index, so a majority is always free to commit. No member makes it later
// than after every entries.
func TestMembersTakeTurns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		count uint64 // Config.SnapshotCount
		bytes int    // of an entry
		every uint64 // entries
	}{
		{"by count", 30, 1, 30},
		{"by bytes", 1 << 20, MaxBytes / 30, 31},
		{"by bytes and, less often, by count", 90, MaxBytes / 30, 31},
	} {
		made := make(map[uint64]uint64) // member by index
		for id := range uint64(3) {
			m := newMember(t, func(c *Config) { c.Self, c.SnapshotCount = id, tt.count })
			for other := range uint64(3) {
				m.write(1, 0)
				m.store.ApplyConf(other+2, 1, nil, &store.MemberChange{Set: &store.Member{ID: other}})
			}
			for last := m.store.Applied(); m.store.Applied() < 5*tt.every; {
				m.add(1, 0)
				m.Applied(tt.bytes)
				select {
				case <-m.cfg.Disk.wakeup:
				default:
					continue
				}
				if err := m.Make(); err != nil {
					t.Fatal(err)
				}
				at := m.store.Durable().Index
				if other, ok := made[at]; ok || at-last > tt.every {
					t.Errorf("%s: member %d makes checkpoints at %d and %d, and member %d at the latter: %v", tt.name, id, last, at, other, ok)
				}
				made[at], last = id, at
			}
		}
		if len(made) < 3*4 {
			t.Errorf("%s: checkpoints at %d indexes, want 4 or 5 of each member's own", tt.name, len(made))
		}
	}
}

// CatchUpBytes keeps more of the log than CatchUpEntries does if entries are small.
func TestSmallEntriesStayByTheirBytes(t *testing.T) {
	m := newMember(t, func(c *Config) { c.CatchUpEntries, c.CatchUpBytes = 10, 1<<20 })
	m.add(200, 1)
	if err := m.Make(); err != nil {
		t.Fatal(err)
	}
	if first := m.firstIndex(); first > 10 {
		t.Errorf("the log begins at %d after %d small entries, want all of them", first, 200)
	}
}

// A follower that is removed, or disconnected for long enough, is not slow any more.
func TestSlowFollowersThatAreForgotten(t *testing.T) {
	m := newMember(t, nil)
	m.loop.progress = map[uint64]tracker.Progress{2: {State: tracker.StateSnapshot, PendingSnapshot: 50}}
	m.slow.add(2, 0)
	m.slow.add(4, 0) // is not a member
	m.add(100, 1)
	if err := m.Make(); err != nil {
		t.Fatal(err)
	}
	if n := m.slow.count.Load(); n != 1 || m.slow.written[4] != 0 {
		t.Errorf("%d followers are slow, of %v, want 2 alone", n, m.slow.written)
	}
}

// For a full disk the log gives up what every connected voter has, and one segment if that frees none.
func TestTruncateForAFullDisk(t *testing.T) {
	keepAll := func(c *Config) { c.CatchUpEntries = 1 << 20 }
	m := newMember(t, keepAll)
	m.add(30, 100<<10) // two to a segment
	if err := m.Make(); err != nil {
		t.Fatal(err)
	}
	truncate := func() uint64 {
		t.Helper()
		if err := m.truncate(m.store.Durable(), true); err != nil {
			t.Fatal(err)
		}
		return m.firstIndex()
	}
	if first := m.firstIndex(); first != 1 {
		t.Fatalf("the log begins at %d before the disk is full, want 1", first)
	}
	// Member 3 is not connected.
	m.loop.progress = map[uint64]tracker.Progress{2: {Match: 20}, 3: {Match: 2}, 4: {Match: 30}}
	if first := truncate(); first != 21 {
		t.Errorf("the log begins at %d for a full disk, want 21: member 2 has the entries before", first)
	}
	frees, ok := m.log.FreesAt()
	if !ok {
		t.Fatal("all of the log is in one segment")
	}
	if first := truncate(); first != frees+1 || first <= 21 {
		t.Errorf("the log begins at %d for a full disk, want %d: one segment less", first, frees+1)
	}
	m.loop.progress = map[uint64]tracker.Progress{2: {Match: 31}}
	truncate()
	before := m.firstIndex()
	if _, ok := m.log.FreesAt(); ok {
		t.Fatal("the log has segments to free")
	}
	m.loop.progress = nil
	if first := truncate(); first != before {
		t.Errorf("the log begins at %d, after %d, for a full disk, want it unchanged: no segment is freed", first, before)
	}
}

// On a full disk, the pauses between two checkpoints grow, and start short again after a success. The
// member goes on.
func TestPausesOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, func(c *Config) { c.SnapshotCount = 1 })
		done := make(chan struct{})
		go func() { defer close(done); m.Run() }()
		applyFor := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				m.add(1, 1)
				m.Applied(1)
			}
		}
		tries := func(d time.Duration) int64 {
			before := m.backend.tried.Load()
			applyFor(d)
			return m.backend.tried.Load() - before
		}
		for round := range 2 {
			m.backend.full.Store(true)
			// At 0, 0.2, 0.6, 1.4, 3, 6.2 and 12.6 s, then every 10 s.
			if got := tries(time.Second); got < 3 || got > 4 {
				t.Errorf("round %d: %d tries in the first second, want 3 or 4", round, got)
			}
			if got := tries(time.Minute); got < 7 || got > 10 {
				t.Errorf("round %d: %d tries in the next minute, want about 8", round, got)
			}
			if err := m.life.Err(); err != nil {
				t.Fatalf("the member has failed: %v", err)
			}
			m.backend.full.Store(false)
			applyFor(MaxPause + time.Second)
			if behind := m.store.Applied() - m.store.Durable().Index; behind > 10 {
				t.Errorf("round %d: the checkpoint is %d entries behind once there is space, want few", round, behind)
			}
		}
		m.life.Stop()
		<-done
	})
}

// A disk stalls if no write ends for StallTicks while one is in progress.
func TestADiskThatStalls(t *testing.T) {
	var stalls []bool
	d := NewDisk(DiskConfig{StallTicks: 3, OnStall: func(stalled bool) { stalls = append(stalls, stalled) }, Logger: slog.New(slog.DiscardHandler)})
	ticks := func(n int) {
		for range n {
			d.Tick()
		}
	}
	ticks(10)
	d.WriteStarted()
	ticks(2)
	d.WriteStarted()
	d.WriteEnded()
	ticks(3) // the first of them sees the end
	if len(stalls) != 0 {
		t.Fatalf("OnStall was called with %v while writes end", stalls)
	}
	ticks(1)
	if !d.IsStalled() || !d.IsUnusable() {
		t.Error("IsStalled() = false after 3 ticks without the end of a write, want true")
	}
	d.WriteEnded()
	ticks(1)
	if want := []bool{true, false}; !slices.Equal(stalls, want) || d.IsUnusable() {
		t.Errorf("OnStall was called with %v, want %v", stalls, want)
	}
}

func TestSpaceAttrs(t *testing.T) {
	for _, tt := range []struct {
		name             string
		free, size, want int64
	}{
		{"no byte is free", 0, 100, 100},
		{"one byte too few", 99, 100, 1},
		{"enough", 100, 100, 0},
		{"more than enough", 500, 100, 0},
	} {
		got := spaceAttrs(tt.free, true, tt.size)
		if len(got) != 6 || got[1] != tt.size || got[3] != tt.free || got[5] != tt.want {
			t.Errorf("spaceAttrs() with %s = %v, want %d missing", tt.name, got, tt.want)
		}
	}
	if got := spaceAttrs(0, false, 100); len(got) != 2 {
		t.Errorf("spaceAttrs() without the free space = %v, want the needed space only", got)
	}
}
