package leasetest

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// write is one write to the disk.
type write struct {
	entries []*raftpb.Entry
	hard    *raftpb.HardState
	snap    *raftpb.Snapshot
}

// save makes w durable. It fails if the machine cannot be restored; then the
// process cannot go on, since raft has the snapshot already.
func (n *Node) save(w write) error {
	if err := n.install(w.snap); err != nil {
		return err
	}
	must(n.disk.Save(w.entries, w.hard, n.forLog(w.snap)))
	return nil
}

// saveTorn writes w without its hard state, as a crash within Save may leave it.
func (n *Node) saveTorn(w write) {
	d, ok := n.disk.(tornDisk)
	if !ok || n.install(w.snap) != nil {
		return
	}
	if d.SaveTorn(w.entries, n.forLog(w.snap)) && !raft.IsEmptyHardState(w.hard) && len(w.entries) > 0 {
		n.losses.torn++
	}
}

// losses counts and schedules losses of data in crashes.
type losses struct {
	// tears is a crash within a later write, if its match is set. torn counts the crashes
	// that have kept the entries of a Ready without its hard state.
	tears tear
	torn  int
	// recovered is the commit index that the log proved at the start, if the hard state
	// had a lower one, else 0.
	recovered uint64
}

// tear is a crash between the entries and the hard state of a later write.
type tear struct {
	match   func([]*raftpb.Entry) bool
	crashed func()
}

// tearsIn reports whether w is the write in which the process is to die.
func (n *Node) tearsIn(w write) bool {
	return n.losses.tears.match != nil && len(w.entries) > 0 && !raft.IsEmptyHardState(w.hard) && n.losses.tears.match(w.entries)
}

// startWrite makes w durable after the disk's delay and then runs done, on the
// node's goroutine.
func (n *Node) startWrite(w write, done func()) {
	finish := func() {
		if n.tearsIn(w) {
			crashed := n.losses.tears.crashed
			n.CrashTorn(0, len(w.entries))
			crashed()
			return
		}
		if n.save(w) != nil {
			n.Crash(0)
			n.cluster.After(time.Second, n.Restart)
			return
		}
		n.unsynced = slices.Delete(n.unsynced, 0, 1)
		done()
	}
	n.unsynced = append(n.unsynced, w)
	d := delay(n.Options.DiskDelay)
	if d == 0 && !n.Options.Async {
		finish()
		return
	}
	n.later(d, func() { n.onWriteDone(finish) })
}

// onWriteDone is exec for the completion that a busy node waits for.
func (n *Node) onWriteDone(finish func()) {
	if n.paused {
		n.finished = append(n.finished, finish)
		return
	}
	finish()
	n.pump()
	n.drain()
}

func delay(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return f()
}

// Torn returns how many Readys crashes have torn.
func (n *Node) Torn() int { return n.losses.torn }

// Recovered returns the commit index that the log proved when the process started, 0
// if the hard state knew it.
func (n *Node) Recovered() uint64 { return n.losses.recovered }
