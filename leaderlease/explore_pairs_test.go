package leaderlease

import (
	"runtime"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// callers are calls that change what readers may see, each of which reads the clock
// under the lock.
var callers = []struct {
	name string
	do   func(p *puppet, grant *raftpb.Message)
}{
	{"a grant", func(p *puppet, grant *raftpb.Message) { p.Incoming(grant) }},
	{"Invalidate", func(p *puppet, _ *raftpb.Message) { p.invalidate() }},
	{"Tick", func(p *puppet, _ *raftpb.Message) { p.Tick() }},
	{"the end of the reign", func(p *puppet, _ *raftpb.Message) { p.follow(3, 2) }},
	{"Close", func(p *puppet, _ *raftpb.Message) { p.Close() }},
}

// TestExplorePairs makes every two calls at once. The second stands in line for the
// lock, for so long that sync.Mutex hands it over at the next Unlock, wherever in the
// first that is. In the end readers see what the lease is.
func TestExplorePairs(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, first := range callers {
		for _, second := range callers {
			c := &hookClock{}
			c.Advance(time.Hour)
			p := leading(t, func(cfg *Config) { cfg.Clock = c })
			c.Advance(100 * ms)
			grant := p.granted(p.heartbeat())
			c.Advance(ms)
			done := make(chan struct{})
			c.hook = func() {
				go func() {
					defer close(done)
					second.do(p, grant)
				}()
				p.standInLine()
			}
			first.do(p, grant)
			<-done
			if got, want := p.view.Load(), p.mu.lease.View(c.Now()); !got.same(&want, 0) {
				t.Errorf("COUNTEREXAMPLE search=pairs depth=2 states=%d\n%s, and %s meanwhile: readers see %+v of the lease %+v",
					len(callers)*len(callers), first.name, second.name, got.View, want)
			}
		}
	}
}

// standInLine lets a goroutine wait for the lock, which the caller holds, until it is the
// next to have it.
func (p *puppet) standInLine() {
	runtime.Gosched()
	for began := time.Now(); time.Since(began) < 3*ms; {
		continue // longer than sync.Mutex lets anybody wait
	}
	p.mu.Unlock()
	p.mu.Lock()
	runtime.Gosched() // it has lost the race for the lock, and will have it next
}
