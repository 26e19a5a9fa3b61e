package kvnode

import (
	"sync/atomic"
	"time"
)

// progress records when a goroutine last made progress, so that others can see that it hangs.
// One goroutine stores and any loads, so a busy member does not contend for it.
type progress struct {
	begun time.Time    // immutable
	since atomic.Int64 // nanoseconds after begun, plus 1; 0 while the goroutine has nothing to do
}

// note records that the goroutine makes progress at now, and has more to do.
func (p *progress) note(now time.Time) { p.since.Store(int64(now.Sub(p.begun)) + 1) }

// rest records that the goroutine has nothing to do.
func (p *progress) rest() { p.since.Store(0) }

// stall returns how long there was no progress, 0 if there was nothing to do.
func (p *progress) stall() time.Duration {
	since := p.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(p.begun)-time.Duration(since-1))
}

// Stalls returns how long the raft loop has not ticked, and how long the applier has been at one
// entry, 0 if it has none. A loop that hangs serves nothing and keeps its promises; an applier
// that hangs answers neither reads nor writes. A disk that does not answer holds up neither,
// except for a change of the configuration, whose commit the applier waits to have on the disk.
func (n *Node) Stalls() (loop, applier time.Duration) {
	return n.loop.progress.stall(), n.applier.progress.stall()
}
