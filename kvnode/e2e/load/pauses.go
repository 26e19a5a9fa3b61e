package load

import (
	"sync"
	"time"
)

// Pauses measures for how long nothing is answered.
type Pauses struct {
	l    *Load
	stop chan struct{}
	wg   sync.WaitGroup

	failed int64 // before it began
	// The goroutine that looks writes them.
	reads, writes pause
}

// pause is the longest time without an answer so far.
type pause struct {
	count   int64
	since   time.Time
	longest time.Duration
}

// look takes note of how many answers there are by now.
func (p *pause) look(count int64, now time.Time) {
	p.longest = max(p.longest, now.Sub(p.since))
	if count != p.count {
		p.count, p.since = count, now
	}
}

// Pauses begins to measure.
func (l *Load) Pauses() *Pauses {
	now := time.Now()
	p := &Pauses{
		l: l, stop: make(chan struct{}), failed: l.Failed(),
		reads: pause{count: l.Reads(), since: now}, writes: pause{count: l.Writes(), since: now},
	}
	p.wg.Go(p.run)
	return p
}

func (p *Pauses) run() {
	often := time.NewTicker(5 * time.Millisecond)
	defer often.Stop()
	for {
		select {
		case <-p.stop:
			return
		case now := <-often.C:
			p.reads.look(p.l.Reads(), now)
			p.writes.look(p.l.Writes(), now)
		}
	}
}

// End returns the longest time without the answer to a read, and to a write, and how
// many requests have failed meanwhile.
func (p *Pauses) End() (reads, writes time.Duration, failed int64) {
	close(p.stop)
	p.wg.Wait()
	return p.reads.longest, p.writes.longest, p.l.Failed() - p.failed
}
