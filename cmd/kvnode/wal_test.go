package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal"
)

// writtenLog makes a log of n entries and returns a data directory with it.
func writtenLog(t *testing.T, n uint64) string {
	t.Helper()
	data := t.TempDir()
	log, err := raftwal.Open(raftwal.Config{Dir: filepath.Join(data, walDir), SegmentSize: 16 << 10, Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for i := range n {
		entries = append(entries, &raftpb.Entry{Index: new(i + 1), Term: new(uint64(2)), Data: []byte("not a command")})
	}
	hard := &raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(0xab)), Commit: new(n)}
	if err := log.Save(entries, hard, nil); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

var _ raft.Storage = (*raftwal.Log)(nil)

// The data directory and the log's own are the same to the command.
func TestWALDirectories(t *testing.T) {
	data := writtenLog(t, 3)
	for _, dir := range []string{data, filepath.Join(data, walDir)} {
		code, stdout, stderr := kvnode("wal", "verify", dir)
		if code != exitOK || !strings.Contains(stdout, "1 to 3") || !strings.Contains(stdout, "term 2, vote ab, commit 3") {
			t.Errorf("kvnode wal verify %s = %d %s %s, want entries 1 to 3", dir, code, stdout, stderr)
		}
	}
}

func TestWALDump(t *testing.T) {
	data := writtenLog(t, 2)
	_, stdout, _ := kvnode("wal", "dump", data)
	for _, want := range []string{"index=1 term=2", "index=2 term=2", "type=EntryNormal", "size=13", "unreadable: ", "vote=ab commit=2"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("kvnode wal dump = %s, want %s", stdout, want)
		}
	}
	_, stdout, _ = kvnode("wal", "dump", "-o", "json", data)
	for _, want := range []string{`"index":1,"term":2,"type":"EntryNormal","size":13`, `"vote":"ab","commit":2`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("kvnode wal dump -o json = %s, want %s", stdout, want)
		}
	}
}

// Damage is found, with its place and reason, and what comes before it is still
// shown.
func TestWALDamage(t *testing.T) {
	data := writtenLog(t, 200)
	names, err := filepath.Glob(filepath.Join(data, walDir, "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no segments: %v", err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 8); err != nil { // in the header
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"verify", "dump"} {
		code, _, stderr := kvnode("wal", command, data)
		if code != exitFailed || !strings.Contains(stderr, "damaged: file "+names[0]+", offset ") {
			t.Errorf("kvnode wal %s of a damaged log = %d %s, want 1, the file and the offset", command, code, stderr)
		}
	}
}
