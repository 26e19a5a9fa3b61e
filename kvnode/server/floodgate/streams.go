package floodgate

import (
	"fmt"
	"net"
	"sync"
)

// streams are those of one connection that are open: they have begun, and neither
// end has ended them. So one counts whose answer is not taken.
type streams struct {
	meter *Meter // immutable

	mu struct {
		sync.Mutex
		open map[uint32]struct{}
		gone bool // the connection is closed
	}
}

func (s *streams) begin(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.open[id]; ok || s.mu.gone {
		return
	}
	if s.mu.open == nil {
		s.mu.open = make(map[uint32]struct{})
	}
	s.mu.open[id] = struct{}{}
	s.meter.open.Add(1)
}

// end may be told of a stream by both ends. It reports whether it was open.
func (s *streams) end(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.mu.open[id]
	if ok {
		delete(s.mu.open, id)
		s.meter.open.Add(-1)
	}
	return ok
}

// leave ends all.
func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.open.Add(-int64(len(s.mu.open)))
	s.mu.open, s.mu.gone = nil, true
}

func (s *streams) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.mu.open))
}

// TooManyError says that a connection may have no further stream now.
type TooManyError struct {
	// Own are those of the connection, All those of all connections.
	Own, All int64
	// Most is how many all may have.
	Most int64
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("kvnode: one request, watch or wait for a lock too many: %d are under way on this connection, and %d on all, of %d at most; "+
		"a connection may have as many as all leave free, and half as many that wait or watch", e.Own, e.All, e.Most)
}

// Permit is asked about the newest stream that was read from c, a connection of a
// Meter, before it is served, by whoever reads from c. Its error is a *TooManyError: then the stream is to be
// refused, and is not counted. Streams that last leave room on their connection for
// those that end them.
func Permit(c net.Conn, lasts bool) error {
	counted, ok := c.(*conn)
	if !ok {
		return nil
	}
	m, own := counted.meter, counted.streams.count()
	weight := own
	if lasts {
		weight *= 2
	}
	all := m.open.Load()
	if weight+all <= m.most || all <= m.most && counted.member() {
		return nil
	}
	counted.drop()
	e := &TooManyError{Own: own - 1, All: all - 1, Most: m.most}
	m.full.Do(func() {
		m.log.Warn("a stream is refused: its connection has as many as all connections leave free (MaxOpenStreams)",
			"remote", c.RemoteAddr().String(), "own", e.Own, "all", e.All, "most", e.Most, "refused", m.refused.Load())
	})
	return e
}

// Refused is called when the newest stream that was read from c, a connection of a Meter, is refused
// for another reason than Permit's. The goroutine that reads from c calls it. The stream is not counted
// as open, and costs its client a turn, as one does that Permit refuses.
func Refused(c net.Conn, reason error) {
	counted, ok := c.(*conn)
	if !ok {
		return
	}
	counted.drop()
	m := counted.meter
	m.full.Do(func() {
		m.log.Warn("a stream is refused: there is no room for one of its kind",
			"remote", c.RemoteAddr().String(), "reason", reason, "refused", m.refused.Load())
	})
}

// drop counts the newest stream as refused and no longer as open. The next Read waits for its turn, as
// one does that has reset an old stream.
func (c *conn) drop() {
	c.streams.end(c.ages.newest)
	c.refused++
	c.meter.refused.Add(1)
}

// BeginRequest counts a request that came by no connection of the Meter, such as one over HTTP/1, until
// end is called. Its error is a *TooManyError, and then the request is not counted. A request that
// lasts leaves room for those that end others.
func (m *Meter) BeginRequest(lasts bool) (end func(), err error) {
	weight := int64(1)
	if lasts {
		weight = 2
	}
	all := m.open.Add(1)
	if weight+all <= m.most {
		return func() { m.open.Add(-1) }, nil
	}
	m.open.Add(-1)
	m.refused.Add(1)
	e := &TooManyError{All: all - 1, Most: m.most}
	m.full.Do(func() {
		m.log.Warn("a request over HTTP is refused: all connections have as many streams as they may (MaxOpenStreams)",
			"all", e.All, "most", e.Most, "refused", m.refused.Load())
	})
	return nil, e
}
