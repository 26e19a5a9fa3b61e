package kvnode

import (
	"context"
	"errors"
)

// Stop transfers leadership, if this member has it and somebody takes it before
// ctx ends, makes a last checkpoint and stops. Requests that are under way fail
// with ErrStopped.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.transfers.transferAway(ctx); err != nil {
		n.log.Warn("leadership was not transferred", "error", err)
	}
	n.once.Do(func() { close(n.stopping) })
	<-n.stopped
	return n.Err()
}

// shutdown ends every goroutine once the node stops, from those that bring work to those
// that do it.
func (n *Node) shutdown() {
	<-n.stopping
	n.awaitResignation()
	n.lease.Close()
	n.waiters.failAll(ErrStopped)
	_ = n.links.Close()
	n.loop.appends.appender.Close()
	n.workers.Wait()
	n.watch.Close()
	if n.Err() == nil {
		if err := n.checkpoints.take(); err != nil {
			n.log.Warn("no last checkpoint", "error", err)
		}
	}
	if err := n.closeFiles(); err != nil {
		n.log.Error("close", "error", err)
	}
	n.log.Info("stopped")
	close(n.stopped)
}

// closeFiles closes what openFiles has opened.
func (n *Node) closeFiles() (err error) {
	n.tracer.Close()
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
