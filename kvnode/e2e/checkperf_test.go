package e2e

import (
	"flag"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// What takes minutes is run, or run to its end, by
//
//	go test -run 'TestCheckPerf|TestAutoCompaction' -timeout 30m . -args -slow -servers=kvnode,etcd
var slowFlag = flag.Bool("slow", false, "run in full what takes minutes")

// checkPerfWrites is how many writes TestCheckPerf waits for.
const checkPerfWrites = 150

// revisionOf returns the cluster's revision.
func revisionOf(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	resp, err := c.Get(deadline(t), "none")
	must(t, err)
	return resp.Header.GetRevision()
}

// etcdctl check perf writes 150 times a second with 50 clients, for a minute. An
// interrupt ends it before: it judges what it has measured, and removes its keys,
// as it does at the end. How fast writes are is not judged here: a busy machine is no fault of the
// server's.
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
