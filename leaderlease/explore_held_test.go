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

// held is a node that makes promises, and would elect itself, as three clocks see it:
// the one that is right, the lease's and Go's (V5). Its Ready must not come back before
// the newest promise that a leader was told of has ended.
type held struct {
	*puppet
	// truth is how long it has been, owed until when a leader may rely on this node.
	truth, owed time.Duration
	reading     int64
	// One clock of the two is right: Go's may run ahead only where the lease's lives.
	dead, ahead bool
	sent        core.Instant
	bad         string
	// freed: it was let go while the lease clock was dead or stood still.
	freed, still bool
}

const promised = 900 * ms

var candidate = raft.Ready{SoftState: &raft.SoftState{RaftState: raft.StateCandidate}}

// heldSteps are what may happen. The clock of a machine that is stopped or moved may
// jump, and Go's with it; a lease clock that cannot be read, or stands still, is no
// reason why Go's should be wrong.
var heldSteps = []struct {
	name string
	do   func(*held)
}{
	{"grant", (*held).grant},
	{"time passes", func(h *held) { h.pass(promised/2, promised/2, promised/2) }},
	{"the lease clock stands still", func(h *held) { h.still = true; h.pass(promised, promised, 0) }},
	{"Go's clock runs ahead", (*held).runAhead},
	{"disrupted", func(h *held) { h.pass(0, time.Hour, time.Hour); h.clock.marker.Add(1) }},
	{"the lease clock dies", (*held).die},
	{"Blocks", func(h *held) { h.judge(h.Blocks(candidate)) }},
	{"Ready", (*held).ready},
}

// pass lets time pass, by each of the clocks.
func (h *held) pass(truth, golang, lease time.Duration) {
	h.truth += truth
	time.Sleep(golang)
	h.reading += int64(lease)
	if !h.dead {
		h.clock.reading.Store(h.reading)
	}
}

func (h *held) runAhead() {
	if !h.dead {
		h.ahead = true
		h.pass(promised/10, 2*promised, promised/10)
	}
}

func (h *held) die() {
	if !h.ahead {
		h.dead = true
		h.clock.reading.Store(0)
	}
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
	h.freed = h.freed || (!blocks && h.owed > 0 && (h.dead || h.still))
}

// ready has Ready hold the node back while time passes.
func (h *held) ready() {
	done := make(chan struct{})
	go func() {
		rd := candidate
		h.Lease.Ready(&rd)
		close(done)
	}()
	for range 100 {
		synctest.Wait()
		select {
		case <-done:
			h.judge(false)
			return
		default:
			h.pass(promised/10, promised/10, promised/10)
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
		t.Error("GOAL \"a node is let go though its lease clock has failed\" in held-back")
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
				began := time.Now()
				n.Stop()
				if took := time.Since(began); took != 0 {
					t.Errorf("COUNTEREXAMPLE search=stopped depth=2 states=9\n%s\n%s\nStop takes %v", first, second, took)
				}
			})
		}
	}
}
