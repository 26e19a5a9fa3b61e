package e2e

import (
	"flag"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/load"
)

var cutsFlag = flag.Int("cuts", 2, "how often all members are cut off from each other")

// All members are cut off from each other, for longer than a promise lasts, again and again. Half of
// the clients send by streams (package fastkv), and two of three reads are forwarded to the leader: what
// they all saw is linearizable, and they go on once the members hear each other.
func TestCuts(t *testing.T) {
	links := &links{}
	c := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Own: links.between(t), Flags: []string{electsSoon}})
	must(t, c.Serve(deadline(t)))
	l, err := load.Start(t.Context(), c.Members(), load.Config{
		Clients: 8, Slots: 5, KeyOps: 1000, Think: 3 * time.Millisecond, Timeout: 2 * time.Second, Seed: 1, Streams: true,
	})
	must(t, err)
	for range *cutsFlag {
		must(t, l.WaitProgress(deadline(t), progress))
		links.cut(true)
		time.Sleep(600 * time.Millisecond)
		links.cut(false)
	}
	must(t, l.WaitProgress(deadline(t), progress))
	history, err := l.Stop()
	must(t, err)
	final, err := load.Final(deadline(t), c.Members()[0])
	must(t, err)
	rep := linz.Check(history, final, 0)
	t.Log(rep)
	must(t, rep.Err())
}
