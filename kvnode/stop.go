package kvnode

import (
	"context"
	"errors"
)

// Stop transfers leadership, if this member has it and somebody takes it before
// ctx ends, makes a last checkpoint and stops. Requests that are under way fail
// with ErrStopped.
func (n *Node) Stop(ctx context.Context) error {
	if err := n.transferAway(ctx); err != nil {
		n.log.Warn("leadership was not transferred", "error", err)
	}
	n.stopOnce.Do(func() { close(n.stopping) })
	n.shutdown()
	return n.Err()
}

// fail stops the node because of err. It returns at once: its callers are the
// goroutines that the stop waits for.
func (n *Node) fail(err error) {
	n.stopOnce.Do(func() {
		n.failure.Store(&err)
		n.log.Error("failed", "error", err)
		close(n.stopping)
		go n.shutdown()
	})
}

// Alive returns why the node has ended, or is about to, and nil while it runs: Err, or
// ErrStopped. It waits for nothing, neither for a leader nor for the disk.
func (n *Node) Alive() error {
	if !n.isStopping() {
		return nil
	}
	if err := n.Err(); err != nil {
		return err
	}
	return ErrStopped
}

func (n *Node) isStopping() bool {
	select {
	case <-n.stopping:
		return true
	default:
		return false
	}
}

// shutdown ends every goroutine, from those that bring work to those that do it.
func (n *Node) shutdown() {
	n.shutdownOnce.Do(func() {
		<-n.begun // a peer may have refused this member already
		n.lease.Close()
		n.waiters.failAll(ErrStopped)
		_ = n.links.Close()
		n.applies.close()
		n.appender.Close()
		n.workers.Wait()
		n.watch.Close()
		if n.Err() == nil {
			if err := n.checkpoint(); err != nil {
				n.log.Warn("no last checkpoint", "error", err)
			}
		}
		if err := n.closeFiles(); err != nil {
			n.log.Error("close", "error", err)
		}
		n.log.Info("stopped")
		close(n.stopped)
	})
	<-n.stopped
}

// closeFiles closes what openFiles has opened.
func (n *Node) closeFiles() (err error) {
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
