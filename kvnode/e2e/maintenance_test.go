package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// compacted reports whether a revision has been compacted.
func compacted(ctx context.Context, t *testing.T, c *clientv3.Client, rev int64) bool {
	t.Helper()
	_, err := c.Get(ctx, "k", clientv3.WithRev(rev))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("Get() at revision %d: %v", rev, err)
	}
	return err != nil
}

// In periodic mode a revision stays readable for about the period after it was
// replaced, and is compacted some time later.
func TestAutoCompactionPeriodic(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		const period = 500 * time.Millisecond
		client, _ := memberClients(t, startCluster(t, p, "--auto-compaction-mode=periodic", "--auto-compaction-retention="+period.String()))
		ctx := deadline(t)
		// when[i] is a time at which revision 2+i had not been replaced yet. young is
		// the first revision that must still be readable.
		when, young, first := []time.Time{}, 0, 2
		for begin, gone := time.Now(), false; !gone; time.Sleep(10 * time.Millisecond) {
			put, err := client.Put(ctx, "k", "")
			must(t, err)
			if when = append(when, time.Now()); put.Header.GetRevision() != int64(first+len(when)-1) {
				t.Fatalf("write %d is at revision %d, want a cluster of its own", len(when), put.Header.GetRevision())
			}
			// This comes first, so that the check below covers the compaction that ends the test.
			gone = compacted(ctx, t, client, int64(first))
			for time.Since(when[young]) >= period/2 {
				young++
			}
			if compacted(ctx, t, client, int64(first+young)) && time.Since(when[young]) < period/2 {
				t.Fatalf("revision %d is gone %v after it was written, want it to stay for about %v", first+young, time.Since(when[young]), period)
			}
			if time.Since(begin) > patience {
				t.Fatalf("nothing is compacted in %v", time.Since(begin))
			}
		}
	})
}

// In revision mode all but the newest revisions are compacted every five minutes.
func TestAutoCompactionByRevision(t *testing.T) {
	if !*slowFlag {
		t.Skip("a member compacts every five minutes: run it with -args -slow")
	}
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		const retention = 10
		client, _ := memberClients(t, startCluster(t, p, "--auto-compaction-mode=revision", "--auto-compaction-retention=10"))
		rev := fill(deadline(t), t, client, "k", "a", 3000, 10) // 30 revisions
		oldest := rev - retention
		for begin := time.Now(); !compacted(deadline(t), t, client, oldest-1); time.Sleep(time.Second) {
			if time.Since(begin) > 6*time.Minute {
				t.Fatalf("nothing is compacted in %v", time.Since(begin))
			}
		}
		if compacted(deadline(t), t, client, oldest) {
			t.Errorf("revision %d is gone, want the last %d before %d to stay", oldest, retention, rev)
		}
	})
}

// A full store refuses writes with an alarm until it is compacted, defragmented
// and disarmed. Reads and deletions work meanwhile.
func TestFullStoreRaisesAnAlarm(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		s := newScript(t, ctl, startSize(t, p, 3, "--quota-backend-bytes=1048576"))
		ctx := deadline(t)
		c, _ := memberClients(t, s.c)
		value := strings.Repeat("x", 100<<10)
		rev := int64(0)
		for i := 0; ; i++ {
			resp, err := c.Put(ctx, "big", value)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				break
			}
			must(t, err)
			if rev = resp.Header.GetRevision(); i == 30 {
				t.Fatalf("%d KiB were written with a quota of 1 MiB", 100*i)
			}
		}
		etcdctl := func(line string) string { return s.etcdctl(t, s.c.Endpoints(), strings.Fields(line), "") }
		want := "alarm:NOSPACE\n"
		if got := etcdctl("alarm list"); !strings.HasSuffix(got, want) {
			t.Errorf("etcdctl alarm list = %q, want %q", got, want)
		}
		for line, want := range map[string]string{
			"put small 1": "database space exceeded", "lease grant 60": "database space exceeded",
			"endpoint health": "NOSPACE", "get big --keys-only": "big", "del nothing": "0",
		} {
			if got := etcdctl(line); !strings.Contains(got, want) {
				t.Errorf("etcdctl %s in a full store = %.300q, want %q", line, got, want)
			}
		}
		succeeds := func(line string) {
			t.Helper()
			if got := etcdctl(line); strings.Contains(got, "exit code") {
				t.Errorf("etcdctl %s = %s", line, got)
			}
		}
		succeeds(fmt.Sprintf("compaction %d --physical", rev))
		for _, one := range clients(t, s.c.Members()) { // a member that answers has compacted: an earlier defragmentation would free nothing
			_, err := one.Get(ctx, "big", clientv3.WithCountOnly())
			must(t, err)
		}
		for _, line := range []string{"defrag", "alarm disarm", "alarm list", "put small 1", "endpoint health"} {
			succeeds(line)
		}
		resp, err := c.Get(ctx, "big", clientv3.WithCountOnly())
		if err != nil || resp.Count != 1 {
			t.Errorf("Get(big) = %v, %v, want the last value that fitted", resp, err)
		}
	})
}

// A value in a member's store.db is altered while the member is down. The leader finds the
// difference, raises the alarm CORRUPT for that member, and writes stop. With the check at the
// start the member does not serve. After it is replaced, the cluster serves again.
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

// makeDiffer alters a value in a member's store.db, restarts the member, and returns its ID.
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

// checkpoint has a member write its applied state to store.db.
func checkpoint(ctx context.Context, m *testcluster.Member) error {
	return m.Use(func(cl *clientv3.Client) error {
		// A linearizable read waits until the member has applied all writes before it.
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

// alter writes to the store of a stopped member, as if it were the entry of that term that the member
// would apply next. All checksums are right, so the member cannot find it by itself.
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
	_, err = s.SaveCheckpoint(nil)
	must(t, errors.Join(err, s.Close()))
}

// awaitCorrupt waits until the alarm CORRUPT is raised for a member, and for no other.
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

// Tests that take minutes run in full with
//
//	go test -run 'TestCheckPerf|TestAutoCompaction' -timeout 30m . -args -slow -servers=kvnode,etcd
var slowFlag = flag.Bool("slow", false, "run the tests that take minutes in full")

// checkPerfWrites is the number of writes that TestCheckPerf waits for.
const checkPerfWrites = 150

// revisionOf returns the cluster's revision.
func revisionOf(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	resp, err := c.Get(deadline(t), "none")
	must(t, err)
	return resp.Header.GetRevision()
}

// etcdctl check perf writes 150 times a second with 50 clients, for a minute. An interrupt ends it
// early: it judges its measurements and removes its keys, as at the end. The test does not judge
// the speed of writes, since the machine may be busy.
func TestCheckPerf(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		c := startCluster(t, p)
		client, _ := memberClients(t, c)
		_, err := client.Put(deadline(t), "mine", "1")
		must(t, err)
		r := inBackground(t, "--endpoints="+strings.Join(c.Endpoints(), ","), "check", "perf", "--load=s", "--auto-compact", "--auto-defrag")
		for !*slowFlag && revisionOf(t, client) < checkPerfWrites {
			time.Sleep(50 * time.Millisecond)
		}
		if !*slowFlag {
			must(t, r.cmd.Process.Signal(syscall.SIGINT))
		}
		<-r.done
		out, _ := r.take(-1)
		for text, n := range map[string]int{": Throughput": 1, "ERROR(": 0, "Cleanup failed": 0, "Compacted with revision": 1, "Defragmented": len(c.Members())} {
			if strings.Count(out, text) != n {
				t.Errorf("etcdctl check perf = %s, want %q %d times", out, text, n)
			}
		}
		resp, err := client.Get(deadline(t), "", clientv3.WithPrefix())
		if err != nil || resp.Count != 1 || resp.Header.GetRevision() < checkPerfWrites {
			t.Errorf("Get() = %v, %v, want the key from before alone, and at least %d revisions", resp, err, checkPerfWrites)
		}
	})
}
