package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

// listen returns a listener on a port that is free because it has it.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// smallSegment is the size of a member's log segments. A start writes and reads one, which with -race
// takes 0.3 s of CPU time for one of the default size.
const smallSegment = 1 << 20

// runServer runs f with a client of a server.
func runServer(t *testing.T, cfg server.Config, f func(c *clientv3.Client)) {
	t.Helper()
	cfg.Node.SegmentSize = smallSegment
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-s.Ready()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	f(c)
	if err := errors.Join(c.Close(), s.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// savedSnapshot returns a file with two keys at revisions 2 and 3, and the hash
// that the server gave for them.
func savedSnapshot(t *testing.T) (path, hash string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot.db")
	runServer(t, server.Config{Node: node.Config{DataDir: t.TempDir(), Listener: listen(t)}, ClientListener: listen(t)}, func(c *clientv3.Client) {
		for _, key := range []string{"a", "b"} {
			if _, err := c.Put(t.Context(), key, "v"); err != nil {
				t.Fatal(err)
			}
		}
		h, err := c.HashKV(t.Context(), c.Endpoints()[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		hash = fmt.Sprintf("%x", h.Hash)
		stream, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(stream)
		if err := errors.Join(err, stream.Close(), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	})
	return path, hash
}

// What etcd's client saves, these commands describe and restore.
func TestSnapshotStatusAndRestore(t *testing.T) {
	file, hash := savedSnapshot(t)
	number, err := strconv.ParseUint(hash, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		"simple": fmt.Sprintf("%s, 3, 2, %d\n", hash, info.Size()),
		"table":  fmt.Sprintf("%s%s%d ", hash, strings.Repeat(" ", 2+max(0, len("HASH (HEX)")-len(hash))), number),
		"json":   fmt.Sprintf(`"hash":%d,`, number) + `"revision":3,"totalKey":2,"totalSize":` + fmt.Sprint(info.Size()),
	} {
		code, stdout, stderr := kvnode("snapshot", "status", file, "-w", output)
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("snapshot status -w %s = %d %q %s, want %q", output, code, stdout, stderr, want)
		}
	}

	dir := filepath.Join(t.TempDir(), "data")
	peer := listen(t)
	url := "http://" + peer.Addr().String()
	args := []string{
		"snapshot", "restore", file, "--name", "new", "--data-dir", dir, "--initial-cluster", "new=" + url,
		"--initial-advertise-peer-urls", url, "--initial-cluster-token", "other", "--bump-revision", "1000", "--mark-compacted",
	}
	code, stdout, stderr := kvnode(args...)
	if code != exitOK || !strings.Contains(stdout, "into "+dir) || !strings.Contains(stdout, "revision 1003, in terms above 100000000") {
		t.Fatalf("snapshot restore = %d %q %s, want the directory, revision 1003 and a term above 10^9", code, stdout, stderr)
	}
	if code, _, stderr := kvnode(args...); code != exitFailed || !strings.Contains(stderr, "already belongs to a member") {
		t.Errorf("snapshot restore once more = %d %s, want it refused: the directory is in use", code, stderr)
	}
	runServer(t, server.Config{
		Node: node.Config{Name: "new", DataDir: dir, Token: "other", Listener: peer}, ClientListener: listen(t),
	}, func(c *clientv3.Client) {
		got, err := c.Get(t.Context(), "a", clientv3.WithFromKey())
		if err != nil || len(got.Kvs) != 2 || got.Kvs[1].GetModRevision() != 3 || got.Header.GetRevision() != 1003 {
			t.Errorf("Get = %v, %v, want two keys at their revisions, and revision 1003", got, err)
		}
	})
}

// A data directory is restored with its whole log. A store.db alone is restored with a warning that
// the log is missing.
func TestADataDirectoryIsStatedAndRestored(t *testing.T) {
	old := filepath.Join(t.TempDir(), "old")
	runServer(t, server.Config{Node: node.Config{DataDir: old, Listener: listen(t)}, ClientListener: listen(t)}, func(c *clientv3.Client) {
		for _, key := range []string{"a", "b"} {
			if _, err := c.Put(t.Context(), key, "v"); err != nil {
				t.Fatal(err)
			}
		}
		code, _, stderr := kvnode("snapshot", "restore", old, "--data-dir", old+".new")
		if code != exitFailed || !strings.Contains(stderr, "a member runs with it") {
			t.Errorf("snapshot restore of a member that runs = %d %s, want it refused", code, stderr)
		}
	})
	said := func(what, result string, args ...string) {
		t.Helper()
		code, stdout, stderr := kvnode(args...)
		replayed := strings.Contains(stderr, "entries of the log in "+old) && strings.Contains(stderr, "the last that this member knew to be committed")
		if code != exitOK || !strings.Contains(stdout, result) || !replayed {
			t.Errorf("kvnode %v = %d %q %s, want %s and what was replayed", args, code, stdout, stderr, what)
		}
	}
	said("revision 3", ", 3, 2, ", "snapshot", "status", old)
	var line struct {
		RaftIndex uint64
		Replayed  struct{ Last, Committed uint64 }
	}
	_, stdout, _ := kvnode("snapshot", "status", old, "-w", "json")
	if err := json.Unmarshal([]byte(stdout), &line); err != nil || line.Replayed.Last != line.RaftIndex || line.Replayed.Committed == 0 {
		t.Errorf("snapshot status -w json = %s, %v, want what was replayed", stdout, err)
	}
	url := "http://127.0.0.1:2380"
	said("revision 1003", "revision 1003, in terms above 100000000", "snapshot", "restore", old, "--data-dir", old+".new",
		"--initial-advertise-peer-urls", url, "--bump-revision", "1000", "--mark-compacted")
	store := filepath.Join(old, "store.db")
	for _, verb := range []string{"status", "restore"} {
		if _, _, stderr := kvnode("snapshot", verb, store); !strings.Contains(stderr, "WARNING: "+store) || !strings.Contains(stderr, "kvnode snapshot restore "+old) {
			t.Errorf("snapshot %s of store.db says %s, want a warning", verb, stderr)
		}
	}
}

func TestSnapshotRefusals(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"snapshot status", exitUsage, "missing FILE"},
		{"snapshot status -w xml " + bad, exitUsage, "must be simple, table or json"},
		{"snapshot status " + bad, exitFailed, "neither of kvnode nor of etcd"},
		{"snapshot status " + dir, exitFailed, "holds no member.json"},
		{"snapshot restore " + dir + " --data-dir " + dir + "/new", exitFailed, "holds no member.json"},
		{"snapshot status /nowhere", exitFailed, "/nowhere"},
		{"snapshot restore", exitUsage, "missing FILE"},
		{"snapshot restore " + bad + " --data-dir " + dir + "/new", exitFailed, "has 4096 bytes"},
		{"snapshot restore " + bad + " --initial-cluster a", exitUsage, "must be name=url"},
		{"snapshot restore " + bad + " --bump-revision 1", exitUsage, "--mark-compacted"},
		{"snapshot restore " + bad + " --mark-compacted", exitUsage, "--bump-revision 0"},
		{"snapshot restore " + bad + " --bump-term 0", exitUsage, "--bump-term 0"},
		{"snapshot restore " + bad + " --bump-term -1", exitUsage, "--bump-term"},
		{"snapshot restore " + bad + " --name x --initial-cluster a=http://a:1", exitFailed, `member "x" is not in the initial cluster`},
		{"snapshot restore " + bad + " --wal-dir x", exitUsage, "unknown flag"},
	} {
		code, _, stderr := kvnode(strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("kvnode %s = %d %s, want %d and %q", test.args, code, stderr, test.code, test.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the refusals have left %v behind", entries)
	}
}

// damaged is a member that sends a snapshot of a damaged store.
type damaged struct {
	pb.UnimplementedMaintenanceServer
}

func (damaged) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	body := make([]byte, 32<<10)
	sum := sha256.Sum256(body)
	if err := stream.Send(&pb.SnapshotResponse{Blob: body, RemainingBytes: uint64(len(sum))}); err != nil {
		return err
	}
	return stream.Send(&pb.SnapshotResponse{Blob: sum[:]})
}

// A backup that is not whole does not take the place of the one before.
func TestADamagedSnapshotReplacesNothing(t *testing.T) {
	l := listen(t)
	s := grpc.NewServer()
	pb.RegisterMaintenanceServer(s, damaged{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, []byte("yesterday's"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := kvnode("snapshot", "save", path, "--endpoints", l.Addr().String())
	if code != exitFailed || stdout != "" {
		t.Errorf("snapshot save = %d %q %s, want %d", code, stdout, stderr, exitFailed)
	}
	if got, err := os.ReadFile(path); string(got) != "yesterday's" {
		t.Errorf("the file has %d bytes, %v, want the backup of yesterday", len(got), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 || entries[1].Name() != "backup.damaged" {
		t.Errorf("%v, %v are left, want the backup, and what is damaged beside it", entries, err)
	}
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// /dev/null is no file that a snapshot may take the place of, and neither is what else is none.
func TestASnapshotReplacesFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	one(t, func(addr string) {
		if code, _, stderr := kvnode("snapshot", "save", path, "--endpoints", addr); code != exitUsage || !strings.Contains(stderr, "no regular file") {
			t.Errorf("snapshot save to a socket = %d %s, want %d", code, stderr, exitUsage)
		}
	})
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("%v, %v, want the socket as it was", info, err)
	}
}
