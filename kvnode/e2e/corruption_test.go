package e2e

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// A value in a member's store.db is altered while the member does not run. The leader
// finds the member, raises the alarm CORRUPT for it, and writes stop. The member does
// not serve if it is to compare first; once it is replaced all goes on.
func TestAnAlteredStoreRaisesCorrupt(t *testing.T) {
	c := startCluster(t, onlyKvnode(t), "--corrupt-check-time=1s")
	ctx := deadline(t)
	m := follower(ctx, t, c)
	lead, err := c.Leader(ctx)
	must(t, err)
	cl, err := lead.Client()
	must(t, err)
	defer cl.Close()
	awaitCorrupt(ctx, t, cl, makeDiffer(ctx, t, cl, m))
	if _, err := cl.Put(ctx, "key", "later"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("Put() = %v under the alarm, want %v", err, rpctypes.ErrCorrupt)
	}

	kill(t, m)
	flags := m.Flags
	with(m, "--feature-gates=InitialCorruptCheck=true")
	before := len(m.Log())
	must(t, m.Start())
	code, err := m.WaitExit(ctx)
	must(t, err)
	for _, word := range []string{"this member's data differs from that of other members", "member remove"} {
		if said := m.Log()[before:]; code <= 0 || !strings.Contains(said, word) {
			t.Errorf("the altered member ends with code %d, want a positive one, and %q in:\n%s", code, word, said)
		}
	}
	m.Flags = flags

	must(t, replaceMember(ctx, c, m, lead))
	_, err = cl.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	must(t, err)
	mustServe(t, c.Members()...)
}

// makeDiffer restarts a member with a store.db of which one value is altered, and returns its ID.
func makeDiffer(ctx context.Context, t *testing.T, cl *clientv3.Client, m *testcluster.Member) (id uint64) {
	t.Helper()
	status, err := m.WaitStatus(ctx)
	must(t, err)
	putSurely(t, cl, "key", "sound")
	must(t, checkpoint(ctx, m))
	newer := putSurely(t, cl, "key", "newer")
	mustServe(t, m) // its log has what its store.db has not
	kill(t, m)
	alter(t, m, newer.GetRaftTerm(), "key", "wrong")
	must(t, m.Start())
	return status.Header.GetMemberId()
}

// checkpoint has a member bring its store.db up to what it has applied now.
func checkpoint(ctx context.Context, m *testcluster.Member) error {
	return m.Use(func(cl *clientv3.Client) error {
		// What it has read it has applied.
		if err := load.Retry(ctx, func(ctx context.Context) error { _, err := cl.Get(ctx, "key"); return err }); err != nil {
			return err
		}
		snapshot, err := cl.Snapshot(ctx)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, snapshot)
		return errors.Join(err, snapshot.Close())
	})
}

// alter writes to the store of a member that does not run, in the place of the entry
// that it would apply next, which is of that term. No sum is wrong: the member cannot see it by itself.
func alter(t *testing.T, m *testcluster.Member, term uint64, key, value string) {
	t.Helper()
	backend, err := boltdb.Open(filepath.Join(m.Dir, "store.db"))
	must(t, err)
	s, err := store.Open(store.Config{Backend: backend})
	must(t, err)
	command := &store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
	data, err := command.Encode()
	must(t, err)
	must(t, s.Apply(s.Applied()+1, term, data).Err)
	_, err = s.Checkpoint(nil)
	must(t, errors.Join(err, s.Close()))
}

// awaitCorrupt waits until the alarm CORRUPT stands for a member, and for it alone.
func awaitCorrupt(ctx context.Context, t *testing.T, cl *clientv3.Client, id uint64) {
	t.Helper()
	for {
		list, err := cl.AlarmList(ctx)
		must(t, err)
		var standing []string
		for _, a := range list.Alarms {
			standing = append(standing, a.String())
			if a.GetAlarm() != pb.AlarmType_CORRUPT || a.GetMemberID() != id {
				t.Fatalf("alarm %v stands, want CORRUPT of %x alone", a, id)
			}
		}
		if len(standing) > 0 {
			t.Logf("raised: %s", strings.Join(standing, ", "))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no alarm stands: %v", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
