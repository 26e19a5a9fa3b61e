package cli

import (
	"crypto/sha256"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

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
