package kvnode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/etcdfile"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/restore"
)

// etcdSnapshots returns the snapshots of real servers, by version.
func etcdSnapshots(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("internal/etcdfile/testdata/*.db")
	if err != nil || len(files) < 3 {
		t.Fatalf("there are the snapshots %q, %v, want those of three versions", files, err)
	}
	all := make(map[string]string)
	for _, path := range files {
		all[strings.TrimSuffix(filepath.Base(path), ".db")] = path
	}
	return all
}

// asEtcd makes a file as etcd's of what a member has imported, so that etcd's hash can be
// taken of it.
func asEtcd(t *testing.T, dir string, compacted int64) *etcdfile.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := bbolt.Open(filepath.Join(dir, memberdir.StateFile), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(to *bbolt.Tx) error {
		meta, err := to.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		if err := meta.Put([]byte("finishedCompactRev"), fmt.Appendf(binary.BigEndian.AppendUint64(nil, uint64(compacted)), "_%s", make([]byte, 8))); err != nil {
			return err
		}
		keys, err := to.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		return store.View(func(from *bbolt.Tx) error {
			return from.Bucket([]byte("key")).ForEach(func(key, value []byte) error {
				if binary.BigEndian.Uint64(key) == 0 {
					return nil // a TTL lease
				}
				var kv mvccpb.KeyValue
				if err := proto.Unmarshal(value[5:], &kv); err != nil {
					return err
				}
				rev := slices.Concat(key[:8], []byte("_"), key[8:])
				if kv.GetVersion() == 0 {
					rev = append(rev, 't')
					kv.ModRevision = 0
				}
				data, err := proto.Marshal(&kv)
				return errors.Join(err, keys.Put(rev, data))
			})
		})
	})
	if err := errors.Join(err, store.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := etcdfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Three members that are restored from a snapshot of etcd's have what it had, at each
// revision that it kept, in the order in which it was written.
func TestAnEtcdSnapshotIsRestored(t *testing.T) {
	for version, path := range etcdSnapshots(t) {
		t.Run(version, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
				restored := c.restoreAll(path, nil)
				for _, r := range restored {
					if r.ClusterID != restored[0].ClusterID || r.Imported == nil || r.Checkpoint.Revision != 19 || r.Term < restore.DefaultBumpTerm+2 {
						t.Fatalf("restored %+v, want one cluster at revision 19, which was imported", r)
					}
				}
				imported := asEtcd(t, c.cfgs["m1"].DataDir, restored[0].Imported.Hash.CompactRevision)
				for line := range bytes.Lines(readFile(t, strings.TrimSuffix(path, ".db")+".hashes")) {
					var rev int64
					var want uint32
					if _, err := fmt.Sscan(string(line), &rev, &want); err != nil {
						t.Fatal(err)
					}
					if got, err := imported.HashKV(rev); err != nil || got != want {
						t.Errorf("etcd's HashKV(%d) of the import = %d, %v, want %d", rev, got, err, want)
					}
				}
				for _, name := range []string{"m1", "m2", "m3"} {
					c.start(name)
				}
				wantImported(t, c)
			})
		})
	}
}

// wantImported looks at what the members serve.
func wantImported(t *testing.T, c *cluster) {
	t.Helper()
	n := c.leader()
	s := n.Store()
	kv, at := s.Get([]byte("again"))
	got := fmt.Sprintf("%s create %d mod %d version %d at %d, compacted %d", kv.GetValue(), kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), at, s.CompactRevision())
	if want := "3 create 12 mod 18 version 2 at 19, compacted 10"; got != want {
		t.Errorf("again = %s, want %s", got, want)
	}
	granted := make(map[int64][]string)
	for _, l := range s.TTLLeases() {
		for _, key := range s.TTLKeys(l.ID) {
			granted[l.TTL] = append(granted[l.TTL], string(key))
		}
	}
	if !slices.Equal(granted[3600], []string{"leased/b"}) || !slices.Equal(granted[60], []string{"leased"}) {
		t.Errorf("the TTL leases have the keys %v, want leased/b for an hour and leased for a minute", granted)
	}
	hashes := make(map[uint32]bool)
	for _, m := range c.nodes {
		h, err := m.Store().HashKV(19)
		if err != nil {
			t.Error(err)
		}
		hashes[h.Hash] = true
	}
	if len(hashes) != 1 {
		t.Errorf("the members' hashes are %v, want one", hashes)
	}
	c.put(n, "a", "more")
	if kv, _ := s.Get([]byte("a")); kv.GetModRevision() != 20 || kv.GetVersion() != 2 {
		t.Errorf("a after a put = %v, want version 2 at revision 20", kv)
	}
}
