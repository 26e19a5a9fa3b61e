package e2e

import (
	"flag"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/procs"
)

// What takes minutes is run, or run to its end, by
//
//	go test -run 'TestCheckPerf|TestAutoCompaction' -timeout 30m . -args -slow -servers=kvnode,etcd
var slowFlag = flag.Bool("slow", false, "run in full what takes minutes")

// etcdctl check perf writes 150 times a second with 50 clients, for a minute. An
// interrupt ends it before: it judges what it has measured, and removes its keys,
// as it does at the end. How long the slowest write may take is not judged here:
// a busy machine is no fault of the server's.
func TestCheckPerf(t *testing.T) {
	eachServer(t, func(t *testing.T, p procs.Program) {
		c := startCluster(t, p)
		client, _ := memberClients(t, c)
		_, err := client.Put(deadline(t), "mine", "1")
		must(t, err)
		r := inBackground(t, "--endpoints="+strings.Join(c.Endpoints(), ","), "check", "perf", "--load=s", "--auto-compact", "--auto-defrag")
		limit := 2 * time.Second
		if *slowFlag {
			limit = 2 * time.Minute
		}
		select {
		case <-r.done:
		case <-time.After(limit):
			must(t, r.cmd.Process.Signal(syscall.SIGINT))
			<-r.done
		}
		out, _ := r.take(-1)
		for text, n := range map[string]int{"PASS: Throughput": 1, "ERROR(": 0, "Cleanup failed": 0, "Compacted with revision": 1, "Defragmented": len(c.Members())} {
			if strings.Count(out, text) != n {
				t.Errorf("etcdctl check perf = %s, want %q %d times", out, text, n)
			}
		}
		resp, err := client.Get(deadline(t), "", clientv3.WithPrefix())
		if err != nil || resp.Count != 1 || resp.Header.GetRevision() < 150 {
			t.Errorf("Get() = %v, %v, want the key from before alone, and at least 150 revisions", resp, err)
		}
	})
}
