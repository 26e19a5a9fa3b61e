package sim

import (
	"math/rand/v2"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// load makes the requests of clients. When the history of a key is full, a new key takes its
// slot.
type load struct {
	writes, reads, probes, compacts *rand.Rand
	write                           uint64 // newest write
}

func (l *load) init(seed uint64) {
	l.writes, l.reads, l.probes = stream(seed, streamWrites), stream(seed, streamReads), stream(seed, streamProbes)
	l.compacts = stream(seed, streamCompacts)
}

func (s *sim) startLoad() {
	s.every(s.load.writes, s.w.Write, s.writeSomewhere)
	s.every(s.load.reads, s.w.Read, s.readSomewhere)
	s.every(s.load.probes, s.w.Probe, func() { s.probeAll(s.key(s.load.probes)) })
	if s.cfg.Compact > 0 {
		s.every(s.load.compacts, s.cfg.Compact/time.Duration(s.w.nodes()), s.compactSomewhere)
	}
}

// compactSomewhere makes a random node compact its log.
func (s *sim) compactSomewhere() {
	if n := s.anyNode(s.load.compacts); n.Up() && !n.Paused() {
		n.Compact()
		s.compareState(n)
	}
}

// every runs f again and again, d apart on average.
func (s *sim) every(r *rand.Rand, d time.Duration, f func()) {
	var due func()
	schedule := func() { s.c.After(between(r, d/2, d*3/2), due) }
	due = func() {
		if !s.violated() {
			f()
			schedule()
		}
	}
	schedule()
}

func (s *sim) key(r *rand.Rand) uint64 { return s.linear.key(r.IntN(s.w.Keys)) }

func (s *sim) anyNode(r *rand.Rand) *leasetest.Node {
	nodes := s.c.Nodes()
	return nodes[r.IntN(len(nodes))]
}

// writeSomewhere writes at any node, mostly at one that leads.
func (s *sim) writeSomewhere() {
	n, key := s.anyNode(s.load.writes), s.key(s.load.writes)
	if l := s.c.Leader(); l != nil && s.load.writes.IntN(4) != 0 {
		n = l
	}
	s.writeAt(n, key)
}

func (s *sim) writeAt(n *leasetest.Node, key uint64) {
	if !n.Up() || n.Paused() {
		return
	}
	id := s.load.write + 1
	if !s.linear.begin(key, id, n.ID, s.c.Now(), s.c.Now()+4*s.w.electionTimeout()) {
		return
	}
	s.load.write++
	n.Write(key, id, func(version uint64) {
		s.res.Writes++
		s.trace.note(s.c.Now(), n.ID, "write done", "key version", key, version)
		s.versions.raise(key, version)
		s.raft.acked(ack{write: id, key: key, version: version, index: n.Applied()})
		// Each node that still serves reads must have this write. Some nodes are about to learn
		// that they no longer lead, so the probe is repeated soon.
		s.probeAll(key)
		s.c.After(s.w.Latency*3/2, func() { s.probeAll(key) })
		s.readAt(s.anyNode(s.load.probes), key)
	})
}

// readSomewhere reads at any node by whatever path serves.
func (s *sim) readSomewhere() {
	n, key := s.anyNode(s.load.reads), s.key(s.load.reads)
	s.readAt(n, key)
}

func (s *sim) readAt(n *leasetest.Node, key uint64) {
	if !n.Up() || n.Paused() {
		return
	}
	floor, newest := s.versions.floor(key), s.versions.newest
	record := s.linear.beginRead(key)
	read := n.Read
	if s.cfg.IndexReads {
		read = n.ReadIndex
	}
	read(key, func(version uint64, path leaderlease.Path, err error) {
		s.trace.mix(uint64(s.c.Now()), n.ID, key, version, uint64(path))
		if err != nil {
			s.res.Failed++
			record.drop()
			return
		}
		switch n.Options.Kind {
		case leasetest.Plain:
			if !s.w.RaftAlone {
				record.drop() // a leader with a lease may have answered, and keeps other rules
				return
			}
			s.res.Reads[path]++
		case leasetest.Stock:
			s.res.StockReads++
		default:
			s.res.Reads[path]++
		}
		record.done(n.ID, version)
		s.checkRead(n, key, floor, version, path.String())
		s.checkNewest(n, key, newest)
	})
}

// probeAll asks every node for a lease read of key, including former leaders. A paused node
// cannot answer.
func (s *sim) probeAll(key uint64) {
	for _, n := range s.c.Nodes() {
		s.probe(n, key)
		if n.Options.Kind == leasetest.Stock && n.Up() && n.Role() == leaderRole {
			s.readAt(n, key)
		}
	}
}

// probe makes a lease read of key at n, unless n is paused.
func (s *sim) probe(n *leasetest.Node, key uint64) {
	if s.cfg.IndexReads {
		return
	}
	s.leases.check(s, n)
	if !n.Paused() {
		s.tryRead(n, key)
	}
}

// tryRead makes a lease read of key at n, even if n is paused: when the process resumes, a
// reader may be scheduled first.
func (s *sim) tryRead(n *leasetest.Node, key uint64) {
	if s.cfg.IndexReads || !n.Up() || n.Lease() == nil {
		return
	}
	index, status := n.Lease().TryRead()
	if status != leaderlease.StatusValid || n.Applied() < index {
		return
	}
	version := n.Version(key)
	s.res.LeaseReads++
	s.trace.mix(uint64(s.c.Now()), n.ID, key, version)
	if len(n.Conf().GetVotersOutgoing()) > 0 {
		s.res.JointReads++
	}
	s.linear.instant(key, n.ID, version)
	s.checkRead(n, key, s.versions.floor(key), version, "try")
	s.checkNewest(n, key, s.versions.newest)
}

func (s *sim) checkRead(n *leasetest.Node, key, floor, version uint64, path string) {
	if version < floor {
		s.violatef("stale", n.ID, "read of key %d by path %s shows version %d, but version %d was known before it", key, path, version, floor)
	}
	s.versions.raise(key, version)
}

// checkNewest checks the newest version of all keys in a read. It never decreases, for any key
// and node.
func (s *sim) checkNewest(n *leasetest.Node, key, floor uint64) {
	_, newest := n.Machine().Read(key)
	if newest < floor {
		s.violatef("stale", n.ID, "read of key %d says that %d is the newest version, but %d was known before it", key, newest, floor)
	}
	s.versions.newest = max(s.versions.newest, newest)
}
