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
	n.life.Stop()
	<-n.life.Done()
	return n.Err()
}

// shutdown ends every goroutine once the node stops, from those that bring work to those
// that do it.
func (n *Node) shutdown() {
	<-n.life.Stopping()
	n.awaitResignation()
	n.lease.Close()
	n.proposals.FailAll(ErrStopped)
	_ = n.links.Close()
	n.loop.appends.appender.Close()
	n.life.Wait()
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
	n.life.MarkStopped()
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

// Done is closed when the node has stopped, by Stop or because it failed.
func (n *Node) Done() <-chan struct{} { return n.life.Done() }

// Err returns why the node failed, nil if it did not.
func (n *Node) Err() error { return n.life.Err() }

// Alive returns nil while the node runs, and else Err, or ErrStopped after Stop. It never blocks.
func (n *Node) Alive() error { return n.life.Alive() }
