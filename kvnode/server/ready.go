package server

import (
	"context"
	"time"

	"github.com/leaderlease/go/kvnode"
)

// readyRetry is how long announce waits after a read that failed. The node's
// own waiting paces it while there is no leader; this is for errors that come
// at once.
const readyRetry = 20 * time.Millisecond

// scrapeTime bounds for how long a scrape waits for the checks of /readyz. Longer: who
// scrapes a member without a leader gives up, and gets no figures at all. Shorter: an
// election shows as a member that is not ready, which /readyz waits for.
const scrapeTime = time.Second

// servesNow reports whether /readyz would be good.
func (s *Server) servesNow() bool {
	if !s.isReady() || s.stopping.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ending, scrapeTime)
	defer cancel()
	return s.api.Readiness(ctx) == nil
}

// Live returns why /livez fails, and nil if it does not. It waits for nothing.
func (s *Server) Live(ctx context.Context) error { return s.api.Liveness(ctx) }

// announce says when clients can be served: when a linearizable read has been,
// which needs a leader and everything that was committed before the start, and
// when the other members know where this one serves.
func (s *Server) announce() {
	if !s.openGate() {
		return
	}
	// A read that begins before there is a leader waits for its next try, which
	// may be long after there is one.
	s.awaitLeader()
	for {
		_, err := s.node.Read(s.ending, kvnode.ReadAuto)
		if err == nil {
			break
		}
		select {
		case <-s.ending.Done():
			return
		case <-s.done:
			return
		case <-time.After(readyRetry):
		}
	}
	// Scripts list the members next, and followers look for the leader's URLs.
	select {
	case <-s.node.Published():
	case <-s.ending.Done():
		return
	case <-s.done:
		return
	}
	close(s.ready)
	// Harnesses made for etcd wait for these very words.
	s.log.Info("ready to serve client requests", "client", s.addrs.client,
		"leader", s.node.Leader() == s.node.ID(), "term", s.node.Term())
}

// awaitLeader returns when a leader is known, or nobody waits any more.
func (s *Server) awaitLeader() {
	for {
		changed := s.node.LeaderChanged()
		if s.node.Leader() != 0 {
			return
		}
		select {
		case <-changed:
		case <-s.done:
			return
		case <-s.ending.Done():
			return
		}
	}
}

// watchLeader counts leaders for the metrics.
func (s *Server) watchLeader() {
	var last uint64
	for {
		// The channel is taken before the leader is read: a change in between
		// closes it.
		changed := s.node.LeaderChanged()
		if leader := s.node.Leader(); leader != 0 && leader != last {
			last = leader
			s.changes.Add(1)
		}
		select {
		case <-changed:
		case <-s.node.Done():
			return
		case <-s.ending.Done():
			return
		}
	}
}
