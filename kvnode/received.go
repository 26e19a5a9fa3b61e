package kvnode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/raftwal/fs"
)

// received are the snapshots that leaders have sent, each in a file until the store is
// durable at its index. One is received at a time.
type received struct {
	dir  string // immutable
	busy atomic.Bool
	// noRoomSince is when one last found no room. Whoever made it busy has it.
	noRoomSince time.Time
}

func (r *received) path(index uint64) string { return filepath.Join(r.dir, memberdir.SnapName(index)) }

// partSuffix is of files that are being received.
const partSuffix = ".part"

// receive makes the state durable under the name by which restore finds
// it, before raft hears of the snapshot. Raft offers one that failed again at its next
// heartbeat; one that found no room would take at once what the log waits for.
func (r *received) receive(m *raftpb.Message, state io.Reader) error {
	if ago := time.Since(r.noRoomSince); ago < maxCheckpointPause {
		return fmt.Errorf("no room for a snapshot %v ago, the next is taken %v after that", ago.Round(time.Millisecond), maxCheckpointPause)
	}
	err := r.save(m, state)
	if isNoSpace(err) {
		r.noRoomSince = time.Now()
	}
	return err
}

func (r *received) save(m *raftpb.Message, state io.Reader) error {
	want := m.GetSnapshot().GetMetadata()
	path := r.path(want.GetIndex())
	part, err := os.CreateTemp(r.dir, "*"+partSuffix) // a number takes the place of the star
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }() // gone if it was renamed
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
	// A file of that name is as good, and may be on its way into the store.
	if err := os.Link(part.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(r.dir)
}

// drop removes files that nobody will restore: of index or older, where
// the store is durable at index, and what was interrupted. It leaves what is not
// this program's alone.
func (r *received) drop(index uint64) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return // only room is lost
	}
	for _, e := range entries {
		path := filepath.Join(r.dir, e.Name())
		if i, isSnap := memberdir.SnapIndex(e.Name()); isSnap && i <= index {
			_ = os.Remove(path)
		}
		part, isPart := strings.CutSuffix(e.Name(), partSuffix)
		if _, err := strconv.ParseUint(part, 10, 64); isPart && err == nil && !r.busy.Load() {
			_ = os.Remove(path)
		}
	}
}
