package leasetest

import "go.etcd.io/raft/v3/raftpb"

// maxBurst is how many ticks a process that was paused finds waiting: raft.Node
// buffers this many.
const maxBurst = 128

// Pause stops the process from being scheduled. Its clock goes on; messages
// and ticks wait.
func (n *Node) Pause() { n.paused = true }

// Resume schedules the process again. All the ticks it has missed come at once,
// before or after the messages that have queued up.
func (n *Node) Resume(ticksFirst bool) {
	if !n.up || !n.paused {
		return
	}
	n.paused = false
	burst := func() {
		for range min(n.missed, maxBurst) {
			n.exec(n.tick)
		}
		n.missed = 0
	}
	if ticksFirst {
		burst()
		n.drain()
		return
	}
	n.drain()
	burst()
	n.drain()
}

// Suspend stops the machine. stopClock says whether the lease clock stops with
// it, which CLOCK_MONOTONIC does and CLOCK_BOOTTIME does not.
func (n *Node) Suspend(stopClock bool) {
	n.Pause()
	if stopClock {
		n.Clock.Stop()
	}
}

// Wake resumes a suspended machine.
func (n *Node) Wake(ticksFirst bool) {
	n.Clock.Start()
	n.Resume(ticksFirst)
}

// Crash kills the process. Of the writes under way the oldest survive ones have
// reached the disk.
func (n *Node) Crash(survive int) { n.crash(survive, notTorn) }

// CrashTorn is Crash, except that the first entries of the next write have reached the
// disk without its hard state, if the disk can be torn.
func (n *Node) CrashTorn(survive, entries int) { n.crash(survive, max(entries, 0)) }

const notTorn = -1

// TearNext makes the next write that has entries and a hard state, and for which
// match returns true, tear: the process dies between the two. Then crashed runs. It
// lasts until the process ends, or until match is nil; on a disk that cannot be torn
// nothing of the write is left.
func (n *Node) TearNext(match func([]*raftpb.Entry) bool, crashed func()) {
	n.losses.tears = tear{match, crashed}
}

// crash is CrashTorn unless torn is notTorn.
func (n *Node) crash(survive, torn int) {
	if !n.up {
		return
	}
	n.land(min(survive, len(n.unsynced)), torn)
	n.up = false
	n.run++
	n.role = 0
	if n.cluster.OnCrash != nil {
		n.cluster.OnCrash(n)
	}
}

// Restart starts the process again from its disk.
func (n *Node) Restart() {
	if n.up {
		return
	}
	disk, err := n.disk.Reopen()
	must(err)
	n.disk = disk
	n.start()
	if n.cluster.OnRestart != nil {
		n.cluster.OnRestart(n)
	}
}

// land makes the oldest survive writes reach the disk, and a part of the next one: its
// first torn entries but not its hard state, or, if torn is notTorn, sometimes its
// snapshot the machine but not the log.
func (n *Node) land(survive, torn int) {
	for i := range survive {
		if n.save(n.unsynced[i]) != nil {
			return
		}
	}
	if survive == len(n.unsynced) {
		return
	}
	next := n.unsynced[survive]
	switch {
	case torn != notTorn:
		next.entries = next.entries[:min(torn, len(next.entries))]
		n.saveTorn(next)
	case next.snap.GetMetadata().GetIndex()%2 == 1:
		_ = n.install(next.snap) // it dies anyway
	}
}

// Unsynced returns the number of writes under way.
func (n *Node) Unsynced() int { return len(n.unsynced) }
