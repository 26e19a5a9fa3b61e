// Package bench compares raftwal with other logs on the same disk. It is a module of its own, so
// that the library does not depend on them:
//
//	cd raftwal/bench && go test -bench InTurn -benchtime 100x -count 6
//
// Every arm makes batches of entries of 256 bytes durable, one after the other, with one sync
// each. Only that is timed. The arms are
//
//	append     write behind the end of a file, fdatasync
//	zeros      write into a file filled with zeros, fdatasync: the limit
//	raftwal    this log, with a checkpoint and compaction every 64 MiB
//	etcd       go.etcd.io/etcd/server/v3/storage/wal
//	raft-wal   github.com/hashicorp/raft-wal
//	bbolt      one go.etcd.io/bbolt transaction for a batch
package bench

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	hashiwal "github.com/hashicorp/raft-wal"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/leaderlease/go/raftwal"
)

// save makes entries durable.
type save func(entries []*raftpb.Entry) error

// arms open a log in an empty directory.
var arms = []struct {
	name string
	open func(b *testing.B, dir string, s *source) save
}{
	{"append", openAppend},
	{"zeros", openZeros},
	{"raftwal", openRaftwal},
	{"etcd", openEtcd},
	{"raft-wal", openHashicorp},
	{"bbolt", openBolt},
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// fileBytes is how much raftwal writes for a batch, so that the limit is that
// of the same bytes.
func fileBytes(entries []*raftpb.Entry) int { return 40 + 40 + len(entries)*288 }

const fileSize = 64 << 20

func openFile(b *testing.B, dir string) *os.File {
	f, err := os.Create(filepath.Join(dir, "log"))
	must(b, err)
	b.Cleanup(func() { must(b, f.Close()) })
	return f
}

func openAppend(b *testing.B, dir string, _ *source) save {
	f := openFile(b, dir)
	buf := make([]byte, 1<<20)
	off := int64(0)
	return func(entries []*raftpb.Entry) error {
		n := fileBytes(entries)
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
		return syscall.Fdatasync(int(f.Fd()))
	}
}

func openZeros(b *testing.B, dir string, _ *source) save {
	f := openFile(b, dir)
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < fileSize; off += int64(len(zeros)) {
		_, err := f.WriteAt(zeros, off)
		must(b, err)
	}
	must(b, f.Sync())
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i)
	}
	off := int64(0)
	return func(entries []*raftpb.Entry) error {
		n := fileBytes(entries)
		if off+int64(n) > fileSize {
			off = 0
		}
		if _, err := f.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
		return syscall.Fdatasync(int(f.Fd()))
	}
}

// compactBytes is how much is written from one checkpoint to the next.
const compactBytes = 64 << 20

func openRaftwal(b *testing.B, dir string, src *source) save {
	l, err := raftwal.Open(raftwal.Config{Dir: dir})
	must(b, err)
	b.Cleanup(func() { must(b, l.Close()) })
	bytes := 0
	s := func(entries []*raftpb.Entry) error {
		last := entries[len(entries)-1].GetIndex()
		hard := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(entries[0].GetIndex() - 1)}
		if err := l.Save(entries, hard, nil); err != nil {
			return err
		}
		if bytes += fileBytes(entries); bytes < compactBytes {
			return nil
		}
		bytes = 0
		if err := l.SaveSnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &last}}); err != nil {
			return err
		}
		return l.Compact(last)
	}
	// A log in its prime recycles: every other arm starts with its file, too.
	for l.Stats().Recycled < 2 {
		must(b, s(src.batch(1024)))
	}
	return s
}

func openEtcd(b *testing.B, dir string, _ *source) save {
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "wal"), nil)
	must(b, err)
	b.Cleanup(func() { must(b, w.Close()) })
	return func(entries []*raftpb.Entry) error {
		hard := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(entries[0].GetIndex() - 1)}
		return w.Save(hard, entries)
	}
}

func openHashicorp(b *testing.B, dir string, _ *source) save {
	w, err := hashiwal.Open(dir)
	must(b, err)
	b.Cleanup(func() { must(b, w.Close()) })
	logs := make([]*raft.Log, 0, 1024)
	return func(entries []*raftpb.Entry) error {
		logs = logs[:0]
		for _, e := range entries {
			logs = append(logs, &raft.Log{Index: e.GetIndex(), Term: e.GetTerm(), Data: e.GetData()})
		}
		return w.StoreLogs(logs)
	}
}

func openBolt(b *testing.B, dir string, _ *source) save {
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	bucket := []byte("log")
	must(b, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(bucket)
		return err
	}))
	return func(entries []*raftpb.Entry) error {
		return db.Update(func(tx *bolt.Tx) error {
			t := tx.Bucket(bucket)
			for _, e := range entries {
				var key [8]byte
				binary.BigEndian.PutUint64(key[:], e.GetIndex())
				if err := t.Put(key[:], e.GetData()); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
