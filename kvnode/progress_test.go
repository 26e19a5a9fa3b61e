package kvnode

import (
	"testing"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// stalls checks for how long a member's loop and applier have hung, to a tick.
func (c *cluster) stalls(n *Node, what string, loop, applier time.Duration) {
	c.t.Helper()
	const tick = 200 * time.Millisecond
	gotLoop, gotApplier := n.Stalls()
	if gotLoop < loop-tick || gotLoop > loop+tick || gotApplier < applier-tick || gotApplier > applier+tick {
		c.t.Errorf("Stalls() of %s = %v, %v, want about %v, %v", what, gotLoop, gotApplier, loop, applier)
	}
}

func TestALoopThatHangsShows(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *cluster) {
		n := c.leader()
		c.put(n, "k", "v")
		time.Sleep(time.Minute)
		c.stalls(n, "a member that rests", 0, 0)

		goOn := make(chan struct{})
		n.calls.Push(func(*raftLoop) { <-goOn })
		time.Sleep(20 * time.Second)
		c.stalls(n, "a member with a loop that hangs", 20*time.Second, 0)
		close(goOn)
		time.Sleep(time.Second)
		c.stalls(n, "a member with a loop that goes on", 0, 0)
	})
}

// A disk that does not answer holds up the appender, and the applier only if that has a change
// of the configuration to apply.
func TestADiskThatHangsHoldsUpTheApplierForAChange(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		hang := func(hangs func() bool) (answers chan struct{}) {
			answers = make(chan struct{})
			d.of(n).SetHook(func(op fs.Op) *fs.Fault {
				if op.Kind == fs.OpSync && hangs() {
					<-answers
				}
				return nil
			})
			return answers
		}
		answers, written := hang(func() bool { return true }), make(chan error, 1)
		go func() { written <- put(t.Context(), n, "k", "w") }()
		time.Sleep(3 * time.Second)
		c.stalls(n, "a member with a disk that hangs", 0, 0)
		close(answers)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		answers, changed := hang(func() bool { return n.applier.progress.since.Load() != 0 }), make(chan struct{})
		go func() {
			defer close(changed)
			_, _ = n.AddMember(t.Context(), []string{"http://x:1"}, true) // its time runs out meanwhile
		}()
		time.Sleep(15 * time.Second)
		c.stalls(n, "a member that cannot write what it must before it applies", 0, 15*time.Second)
		close(answers)
		<-changed
	})
}

// On a full disk a change of the configuration waits for room, and the applier with it. A restart
// would not make room, so that is no hang.
func TestAFullDiskIsNoHang(t *testing.T) {
	var d disks
	inCluster(t, 1, d.use, func(t *testing.T, c *cluster) {
		n := c.leader()
		d.fillAfter(n, 1) // the entry
		go func() { _, _ = n.AddMember(t.Context(), []string{"http://x:1"}, true) }()
		time.Sleep(30 * time.Second)
		if !n.Status().DiskFull || n.applier.progress.since.Load() == 0 {
			t.Fatalf("DiskFull = %v, and the applier waits: %v, want both", n.Status().DiskFull, n.applier.progress.since.Load() != 0)
		}
		c.stalls(n, "a member with a full disk", 0, 0)
		d.free(n)
	})
}
