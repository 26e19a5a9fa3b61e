package leaderlease

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// held is a node that makes promises, and would elect itself (V5). Its Ready must not come
// back before the newest promise that a leader was told of has ended.
type held struct {
	*puppet
	// truth is how long it has been, owed until when a leader may rely on this node.
	truth, owed time.Duration
	reading     int64 // of the clock, also while that cannot be read
	dead        bool
	sent        core.Instant
	bad         string
	// freed: it was let go after it owed something.
	freed bool
}

const promised = 900 * ms

var candidate = raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}

// heldSteps are what may happen.
var heldSteps = []struct {
	name string
	do   func(*held)
}{
	{"grant", (*held).grant},
	{"time passes", func(h *held) { h.pass(promised/2, promised/2) }},
	{"the clock stands still", func(h *held) { h.pass(promised, 0) }},
	{"disrupted", func(h *held) { h.pass(0, time.Hour); h.clock.marker.Add(1) }},
	{"the clock dies", func(h *held) { h.lives(false) }},
	{"the clock lives", func(h *held) { h.lives(true) }},
	{"WouldBlock", func(h *held) { h.judge(h.WouldBlock(candidate)) }},
	{"Ready", (*held).ready},
}

// pass lets time pass, and the lease clock show it or not.
func (h *held) pass(truth, lease time.Duration) {
	h.truth += truth
	h.reading += int64(lease)
	h.lives(!h.dead)
	time.Sleep(2 * promised) // Go's clock has no say
}

func (h *held) lives(does bool) {
	if h.dead = !does; h.dead {
		h.clock.reading.Store(0)
		return
	}
	h.clock.reading.Store(h.reading)
}

func (h *held) grant() {
	h.follow(2, 3)
	m := h.message(raftpb.MsgHeartbeat, 3, 1)
	h.sent++
	attachProbe(m, core.Probe{Sent: h.sent, Duration: promised})
	h.Incoming(m)
	out := h.puppet.Ready(raft.Ready{Messages: []*raftpb.Message{h.message(raftpb.MsgHeartbeatResp, 1, 3)}})
	if _, err := grantOf(out[0]); err == nil {
		h.owed = h.truth + promised
	}
}

func (h *held) judge(blocks bool) {
	if !blocks && h.truth < h.owed {
		h.bad = fmt.Sprintf("it is let go at %v, and a leader relies on it until %v", h.truth, h.owed)
	}
	h.freed = h.freed || (!blocks && h.owed > 0)
}

// ready has Ready hold the node back while time passes. A clock that is dead lives again
// after a while.
func (h *held) ready() {
	done := make(chan struct{})
	go func() {
		rd := candidate
		h.Lease.Ready(&rd)
		close(done)
	}()
	for i := range 100 {
		synctest.Wait()
		select {
		case <-done:
			h.judge(false)
			return
		default:
			h.pass(promised/10, promised/10)
			h.lives(!h.dead || i > 50)
		}
	}
	h.bad = "Ready does not come back"
	<-done
}

// TestExploreHeldBack plays every script of a few steps that begins with a grant.
func TestExploreHeldBack(t *testing.T) {
	depth := searched(4)
	plays, freed := 0, false
	var path []int
	var walk func(deeper int)
	walk = func(deeper int) {
		plays++
		h := playHeld(t, path)
		if h.bad != "" {
			t.Fatalf("COUNTEREXAMPLE search=held-back depth=%d states=%d\n%s\ngrant\n%s", len(path), plays, h.bad, heldScript(path))
		}
		freed = freed || h.freed
		if deeper == 0 || (len(path) > 0 && heldSteps[path[len(path)-1]].name == "Ready") {
			return
		}
		for i := range heldSteps {
			path = append(path, i)
			walk(deeper - 1)
			path = path[:len(path)-1]
		}
	}
	for d := 1; d <= depth; d++ {
		walk(d)
	}
	if !freed && depth == 4 {
		t.Error("GOAL \"a node is let go\" in held-back")
	}
	t.Logf("%d plays", plays)
}

func playHeld(t *testing.T, path []int) *held {
	t.Helper()
	var h *held
	synctest.Test(t, func(t *testing.T) {
		h = &held{puppet: newPuppet(t)}
		h.reading = h.clock.reading.Load()
		h.grant()
		for _, i := range path {
			heldSteps[i].do(h)
		}
	})
	return h
}

func heldScript(path []int) string {
	var b strings.Builder
	for _, i := range path {
		b.WriteString(heldSteps[i].name + "\n")
	}
	return b.String()
}

// TestExploreStopped stops a wrapped node that is held back, after every script of a
// few steps: Stop takes no time, whatever the clocks show.
func TestExploreStopped(t *testing.T) {
	names := []string{"time passes", "the lease clock stands still", "the lease clock dies"}
	for _, first := range names {
		for _, second := range names {
			synctest.Test(t, func(t *testing.T) {
				rc, cfg, clock := soleVoter(t)
				inner := raft.RestartNode(rc)
				n, _, err := Wrap(inner, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if err := inner.Campaign(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{first, second} {
					time.Sleep(promised / 4)
					switch name {
					case "time passes":
						clock.Advance(promised / 4)
					case "the lease clock dies":
						clock.reading.Store(0)
					}
				}
				good := int64(2 * time.Hour) // what a Stop that waits would end at
				defer time.AfterFunc(time.Hour, func() { clock.reading.Store(good) }).Stop()
				began := time.Now()
				n.Stop()
				if took := time.Since(began); took != 0 {
					t.Errorf("COUNTEREXAMPLE search=stopped depth=2 states=9\n%s\n%s\nStop takes %v", first, second, took)
				}
			})
		}
	}
}
