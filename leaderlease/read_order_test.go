package leaderlease

import (
	"runtime"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// The commit index is read after the clock and the view have been checked, on
// every way to the lease. A reader that has it from before may have taken it
// while another node led: the reign under whose lease it then serves began later,
// with entries that the reader knows nothing of.
func TestCommitIndexIsReadAfterTheChecks(t *testing.T) {
	for name, read := range map[string]func(*puppet) (index uint64){
		"TryRead":   func(p *puppet) uint64 { index, _ := p.TryRead(); return index },
		"StartRead": func(p *puppet) uint64 { return p.startRead().read.Index },
		"Token":     func(p *puppet) uint64 { token, _ := p.Token(); return token.Index },
		"a forwarded read": func(p *puppet) (index uint64) {
			p.cfg.Send = func(msgs []*raftpb.Message) { index = msgs[0].GetIndex() }
			p.Incoming(p.message(raftpb.MsgReadIndex, 2, 1))
			return index
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &hookClock{}
			c.Advance(time.Hour)
			p := newPuppet(t, func(cfg *Config) { cfg.Clock = c })
			p.follow(2, 2)
			c.hook = func() {
				p.last = 7 // what the leader of term 2 has sent meanwhile
				p.lead(3)
				p.renew()
			}
			if got := read(p); got != p.last {
				t.Errorf("read index %d under the lease of a reign that began with %d", got, p.last)
			}
		})
	}
}

// A view is stored under the lock that orders what the lease says. Stored after
// it, the view of a renewal could bring back a lease that was given up meanwhile.
// Here another goroutine has stood in line for the lock for so long that sync.Mutex
// hands it over at the next Unlock, wherever that is: before the view is stored,
// if the lock is let go too early.
func TestViewsAreStoredUnderTheLock(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := &hookClock{}
	c.Advance(time.Hour)
	p := leading(t, func(cfg *Config) { cfg.Clock = c })
	c.Advance(100 * ms)
	grant := p.granted(p.heartbeat())
	c.Advance(ms)

	invalidated := make(chan struct{})
	c.hook = func() {
		go func() {
			defer close(invalidated)
			p.invalidate()
		}()
		p.standInLine()
	}
	p.Incoming(grant)
	<-invalidated
	p.want(core.Expired)
}
