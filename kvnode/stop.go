package kvnode

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Stop stops the node. A leader first tries to transfer its leadership, for about two election timeouts or until
// ctx ends. Requests under way then fail with ErrStopped. The node makes a last checkpoint unless it has failed.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.transfers.transferAway(ctx); err != nil {
		n.log.Warn("leadership was not transferred", "error", err)
	}
	n.life.Stop()
	<-n.life.Done()
	return n.Err()
}

// shutdown waits until the node stops, which ends most goroutines, and then ends the others and closes the files.
func shutdown(n *Node) {
	<-n.life.Stopping()
	// The loop needs the lease and the connections to resign, so they are closed afterwards. If the loop hangs, they
	// are closed all the same.
	select {
	case <-n.loop.resigned:
	case <-time.After(2 * resignTime):
	}
	n.lease.Close()
	n.proposals.FailAll(ErrStopped)
	_ = n.links.Close()
	n.loop.writer.appender.Close()
	n.life.Wait()
	n.watch.Close()
	if n.Err() == nil {
		if err := n.checkpoints.Make(); err != nil {
			n.log.Warn("no last checkpoint", "error", err)
		}
	}
	if err := closeFiles(n); err != nil {
		n.log.Error("close", "error", err)
	}
	n.log.Info("stopped")
	n.life.MarkStopped()
}

// closeFiles closes the files that Start has opened.
func closeFiles(n *Node) (err error) {
	n.recorder.Close()
	if n.store != nil {
		err = n.store.Close()
	}
	if n.wal != nil {
		err = errors.Join(err, n.wal.Close())
	}
	if n.lock != nil { // last
		err = errors.Join(err, n.lock.Close())
	}
	return err
}

// Done is closed when the node has stopped, by Stop or because it failed.
func (n *Node) Done() <-chan struct{} { return n.life.Done() }

// Err returns why the node failed, nil if it did not.
func (n *Node) Err() error { return n.life.Err() }

// Alive returns nil while the node runs, and else Err, or ErrStopped after Stop. It never blocks.
func (n *Node) Alive() error { return n.life.Alive() }

// Stalls returns how long the raft loop has not ticked, and how long the applier has been at one entry, 0 if it has
// none. A disk that hangs stalls the applier only at a configuration change (applyConf).
func (n *Node) Stalls() (loop, applier time.Duration) {
	return n.loop.progress.stall(), n.applier.progress.stall()
}

// progress records when a goroutine last made progress, so that others can see that it hangs. One goroutine stores
// it, and any goroutine loads it, without a lock.
type progress struct {
	begun time.Time    // immutable
	since atomic.Int64 // nanoseconds after begun, plus 1, because 0 means that the goroutine has nothing to do
}

func newProgress() *progress { return &progress{begun: time.Now()} }

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
