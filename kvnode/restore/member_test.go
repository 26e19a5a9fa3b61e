package restore

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/leaderlease/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a cluster of one over real files, in virtual time.
type member struct {
	*kvnode.Node
	t   *testing.T
	net *memlink.Network
	cfg kvnode.Config
}

// withMember runs f with a member that leads, in a synctest bubble, and stops the member.
func withMember(t *testing.T, f func(t *testing.T, m *member)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "m1")
	synctest.Test(t, func(t *testing.T) {
		m := &member{t: t, net: memlink.New(), cfg: kvnode.Config{
			Name: "m1", DataDir: dir, Clock: clock.Runtime(), SegmentSize: 1 << 20, LaxReconfig: true,
			Cluster: []kvnode.Member{{Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"}}},
		}}
		m.cfg.Dial = m.net.Dialer("m1")
		m.start()
		defer func() { _ = m.Stop(t.Context()) }()
		f(t, m)
	})
}

// start starts the member, and waits until it leads.
func (m *member) start() {
	m.t.Helper()
	if err := m.tryStart(); err != nil {
		m.t.Fatal(err)
	}
	if _, err := m.Read(m.t.Context(), kvnode.ReadLease); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) tryStart() error {
	m.t.Helper()
	l, err := m.net.Listen("127.0.0.1:2380")
	if err != nil {
		m.t.Fatal(err)
	}
	cfg := m.cfg
	cfg.Listener = l
	n, err := kvnode.Start(cfg)
	if err == nil {
		m.Node = n
	}
	return err
}

func (m *member) stop() {
	m.t.Helper()
	if err := m.Stop(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) put(keys ...string) {
	m.t.Helper()
	for _, key := range keys {
		r, err := m.Propose(m.t.Context(), &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte("value")}})
		if err != nil || r.Err != nil {
			m.t.Fatalf("put %s: %v, %v", key, err, r.Err)
		}
	}
}

func (m *member) checkpoint() {
	m.t.Helper()
	if err := m.Checkpoint(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// image copies the data directory as a crash at this moment leaves it.
func (m *member) image() (dir string) {
	m.t.Helper()
	synctest.Wait()
	dir = filepath.Join(m.t.TempDir(), "image")
	if err := os.CopyFS(dir, os.DirFS(m.cfg.DataDir)); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// saved returns a snapshot's file of the member's state.
func (m *member) saved() (path string) {
	m.t.Helper()
	m.checkpoint()
	state, err := m.Store().OpenSnapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = state.Close() }()
	var b bytes.Buffer
	if _, err := state.WriteTo(&b); err != nil {
		m.t.Fatal(err)
	}
	return writeSnapshotFile(m.t, b.Bytes())
}

// savedSnapshot returns the snapshot's file of a member that has one key, and what it holds.
func savedSnapshot(t *testing.T) (path string, data []byte) {
	t.Helper()
	withMember(t, func(t *testing.T, m *member) {
		m.put("key")
		data = readFile(t, m.saved())
	})
	return writeFile(t, data), data
}

func writeSnapshotFile(t *testing.T, db []byte) string {
	t.Helper()
	db = append(db, make([]byte, -len(db)&(snapshotAlign-1))...)
	sum := sha256.Sum256(db)
	return writeFile(t, append(db, sum[:]...))
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// restoreOf returns the restore of a file for a member of a cluster of one, into a directory
// that is missing.
func restoreOf(t *testing.T, file string) Config {
	t.Helper()
	return Config{
		File: file, Name: "a", DataDir: filepath.Join(t.TempDir(), "data"), SegmentSize: 1 << 20,
		Cluster: []memberdir.Member{{Name: "a", PeerURLs: []string{"http://a:2380"}}},
	}
}
