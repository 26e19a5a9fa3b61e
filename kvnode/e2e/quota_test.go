package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// A store that is full refuses to grow and says so, until it is compacted,
// defragmented and disarmed. It can be read, and things can be deleted, meanwhile.
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
