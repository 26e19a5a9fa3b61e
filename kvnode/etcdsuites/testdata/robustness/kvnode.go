package report

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/raftwal"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
)

// readLog reads kvnode's log as ReadWAL reads etcd's. The member must have ended. Entries without an
// effect are empty.
func readLog(dataDir string) (*raftpb.HardState, []*raftpb.Entry, error) {
	l, err := open(filepath.Join(dataDir, "wal"))
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	hard, _, err := l.InitialState()
	if err != nil {
		return nil, nil, err
	}
	first, err := l.FirstIndex()
	if err != nil {
		return nil, nil, err
	}
	last, err := l.LastIndex()
	if err != nil || last < first {
		return hard, nil, err
	}
	stored, err := l.Entries(first, last+1, 1<<40)
	if err != nil {
		return nil, nil, err
	}
	entries := make([]*raftpb.Entry, len(stored))
	for i, e := range stored {
		entries[i] = proto.Clone(e).(*raftpb.Entry)
		if e.GetType() == raftpb.EntryNormal {
			if entries[i].Data, err = request(e); err != nil {
				return nil, nil, fmt.Errorf("entry %d of %s: %w", e.GetIndex(), dataDir, err)
			}
		}
	}
	return hard, entries, nil
}

// open opens the log of a member that was killed, and may not be gone yet.
func open(dir string) (l *raftwal.Log, err error) {
	for range 100 {
		if l, err = raftwal.Open(raftwal.Config{Dir: dir}); err == nil {
			return l, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

// request returns the InternalRaftRequest in an entry of kvnode. The format of entries is that of store.Command.
func request(e *raftpb.Entry) ([]byte, error) {
	const kindRequest, kindGenerations = 0x11, 0x13
	data := e.GetData()
	if len(data) == 0 || data[0] != kindRequest && data[0] != kindGenerations {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	number := func() uint64 {
		x, n := binary.Uvarint(data)
		if n <= 0 {
			data = nil
			return 0
		}
		data = data[n:]
		return x
	}
	number() // the proposal's ID
	if term := number(); term != 0 && term != e.GetTerm() {
		return nil, nil
	}
	if kind == kindGenerations {
		for range number() {
			number()
		}
	}
	var r pb.InternalRaftRequest
	if err := proto.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if r.Alarm != nil || r.LeaseCheckpoint != nil || proto.Size(&r) == 0 {
		return nil, nil // they do not change keys
	}
	return data, nil
}
