package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal/fs"
)

// partSuffix is the suffix of a file that is being received, after a number.
const partSuffix = ".part"

// ReceivedConfig is what a Received uses.
type ReceivedConfig struct {
	Dir   string // where the files are; it exists
	Store *store.Store
	// OnReceive is called before Receive reads a snapshot that it accepts and that is newer than the store.
	OnReceive func()
	PeerName  func(id uint64) string // for log lines
	Logger    *slog.Logger
}

// Received keeps the snapshots that leaders have sent, each in a file until the store is durable at its
// index. It receives one at a time. Its methods are safe for concurrent use.
type Received struct {
	cfg  ReceivedConfig
	logs lifecycle.LogLimit
	busy atomic.Bool
	// noSpaceAt is when a snapshot last found no free space. Used while busy is held.
	noSpaceAt time.Time
}

// NewReceived returns a Received.
func NewReceived(cfg ReceivedConfig) *Received { return &Received{cfg: cfg} }

// Path returns the path of the snapshot with that index.
func (r *Received) Path(index uint64) string {
	return filepath.Join(r.cfg.Dir, memberdir.SnapName(index))
}

// Receive makes the state that comes with m durable at Path. The caller passes m to raft afterwards. If Receive
// fails, the leader's raft sends another snapshot after its next heartbeat. If Receive found no free space, it
// refuses snapshots for MaxPause: they would take the space that the log needs.
func (r *Received) Receive(m *raftpb.Message, size int64, state io.Reader) error {
	if !r.busy.CompareAndSwap(false, true) {
		return errors.New("another snapshot is being received")
	}
	defer r.busy.Store(false)
	index := m.GetSnapshot().GetMetadata().GetIndex()
	if r.logs.Allow(m.GetFrom()) {
		r.cfg.Logger.Info("receives a snapshot", "from", r.cfg.PeerName(m.GetFrom()), "index", index, "bytes", size)
	}
	if index <= r.cfg.Store.Applied() {
		// The leader has not learned that this member is past the snapshot. Raft answers m with its commit index.
		_, err := io.Copy(io.Discard, state)
		return err
	}
	if ago := time.Since(r.noSpaceAt); ago < MaxPause {
		return fmt.Errorf("the disk had no room for a snapshot %v ago, and this member takes none for %v", ago.Round(time.Millisecond), MaxPause)
	}
	r.cfg.OnReceive()
	err := r.save(m, state)
	if IsNoSpace(err) {
		r.noSpaceAt = time.Now()
	}
	return err
}

func (r *Received) save(m *raftpb.Message, state io.Reader) error {
	want := m.GetSnapshot().GetMetadata()
	part, err := os.CreateTemp(r.cfg.Dir, "*"+partSuffix) // a number takes the place of the star
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	_, err = io.Copy(part, state)
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return fmt.Errorf("receive the snapshot of index %d: %w", want.GetIndex(), err)
	}
	got, err := boltdb.ReadCheckpoint(part.Name())
	if err != nil {
		return fmt.Errorf("snapshot of index %d: %w", want.GetIndex(), err)
	}
	if got.Index != want.GetIndex() || got.Term != want.GetTerm() || !proto.Equal(got.ConfState, want.GetConfState()) {
		return fmt.Errorf("snapshot of index %d, term %d holds a state of index %d, term %d", want.GetIndex(), want.GetTerm(), got.Index, got.Term)
	}
	// An existing file of this name holds the same snapshot, and the store may be restoring it.
	if err := os.Link(part.Name(), r.Path(want.GetIndex())); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(r.cfg.Dir)
}

// RemoveUpTo removes the snapshots up to index, at which the store is durable, and those that were received
// in part. It leaves files of other programs alone. A failure costs disk space only.
func (r *Received) RemoveUpTo(index uint64) {
	entries, err := os.ReadDir(r.cfg.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(r.cfg.Dir, e.Name())
		if i, isSnap := memberdir.SnapIndex(e.Name()); isSnap && i <= index {
			_ = os.Remove(path)
		}
		part, isPart := strings.CutSuffix(e.Name(), partSuffix)
		if _, err := strconv.ParseUint(part, 10, 64); isPart && err == nil && !r.busy.Load() {
			_ = os.Remove(path)
		}
	}
}
