package connlimit

import (
	"fmt"
	"net"
)

// Open returns how many streams are open. A stream is open until the end of its answer is written, so a client that
// reads no answers runs out of streams.
func (h *H2) Open() int64 { return h.open.Load() }

// Refused returns how many streams and requests were refused.
func (h *H2) Refused() uint64 { return h.refused.Load() }

// Kind is how long streams of a method are open.
type Kind int

const (
	// Short streams are requests that are answered soon.
	Short Kind = iota
	// Long streams are open for as long as the client likes, such as keep-alives.
	Long
	// Waiting streams last until other requests are served, such as a wait for a lock. They may use only half of a
	// connection's capacity. The rest is for the requests that end the wait.
	Waiting
)

// Begin is called before a stream is served. The caller calls end afterwards. The frames of an H2Conn show when its
// streams are open. If addr is no *Addr, the stream is open until end, and counts as the only one of its connection.
func (h *H2) Begin(addr net.Addr, kind Kind) (end func(), err error) {
	a, ok := addr.(*Addr)
	own, all := int64(1), int64(0)
	if ok {
		own, all = a.conn.begin(kind), h.open.Load()
		end = func() { a.conn.end(kind) }
	} else {
		all = h.open.Add(1)
		end = func() { h.open.Add(-1) }
	}
	weight := own
	if kind == Waiting {
		weight *= 2
	}
	if weight+all <= h.max {
		return end, nil
	}
	end()
	err = fmt.Errorf("kvnode: too many requests, watches and waits for locks: %d are under way on this connection, and %d on all, of %d at most; "+
		"a connection may have as many requests as all connections leave free, and half as many watches and waits", own-1, all-1, h.max)
	h.Refuse(addr, err)
	return nil, err
}

// begin counts a stream by its kind, and returns how many streams are open on the connection.
func (c *H2Conn) begin(kind Kind) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == Short {
		c.mu.busy++
	} else {
		c.mu.settled++ // its answer comes much later, so it does not stay in the backlog
	}
	return int64(len(c.mu.open))
}

func (c *H2Conn) end(kind Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind != Short {
		return
	}
	if c.mu.busy--; c.mu.busy == maxBusy {
		c.wakeReader()
	}
}

// beginLocked is called for the first frame of a stream.
func (c *H2Conn) beginLocked(stream uint32) {
	if _, ok := c.mu.open[stream]; !ok && c.mu.open != nil {
		c.mu.open[stream] = 0
		c.h2.open.Add(1)
	}
}

// endLocked may be called for both ends of a stream. It reports whether it was open.
func (c *H2Conn) endLocked(stream uint32) bool {
	n, ok := c.mu.open[stream]
	if ok {
		delete(c.mu.open, stream)
		c.mu.fragments -= n
		c.h2.open.Add(-1)
	}
	return ok
}

// answeredLocked is called for each part of an answer but the last.
func (c *H2Conn) answeredLocked(stream uint32) {
	if n := c.mu.open[stream]; n > 0 {
		c.mu.open[stream] = 0
		c.mu.fragments -= n
	}
}

// Refuse counts a stream that is refused, and logs some of them.
func (h *H2) Refuse(addr net.Addr, reason error) {
	h.refused.Add(1)
	h.warn.Do(func() {
		h.log.Warn("a stream is refused", "remote", addr.String(), "reason", reason, "limit", "MaxOpenStreams", "refused", h.Refused())
	})
}
