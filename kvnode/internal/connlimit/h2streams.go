package connlimit

import (
	"fmt"
	"net"
)

// Open returns how many streams are open: all that Begin has counted.
func (h *H2) Open() int64 { return h.open.Load() }

// Refused returns how many streams and requests were refused.
func (h *H2) Refused() uint64 { return h.refused.Load() }

// TooManyError says that a connection may have no further stream now.
type TooManyError struct {
	// Own is the number of streams of the connection, All that of all connections, Max
	// the limit for all.
	Own, All, Max int64
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("kvnode: one request, watch or wait for a lock too many: %d are under way on this connection, and %d on all, of %d at most; "+
		"a connection may have as many as all leave free, and half as many that wait or watch", e.Own, e.All, e.Max)
}

// Begin counts a stream before it is served, until end is called. addr is that of an
// H2Conn, or of a request that comes another way and counts as the only stream of its
// connection. The error is a *TooManyError. A stream that lasts, such as a watch or a
// wait for a lock, leaves room on its connection for the requests that end others.
func (h *H2) Begin(addr net.Addr, lasts bool) (end func(), err error) {
	own := h.add(addr, 1, lasts)
	all := h.open.Add(1)
	end = func() {
		h.add(addr, -1, lasts)
		h.open.Add(-1)
	}
	weight := own
	if lasts {
		weight *= 2
	}
	if weight+all <= h.max {
		return end, nil
	}
	end()
	err = &TooManyError{Own: own - 1, All: all - 1, Max: h.max}
	h.Refuse(addr, err)
	return nil, err
}

// add returns how many streams the connection of addr has with n more.
func (h *H2) add(addr net.Addr, n int64, lasts bool) int64 {
	a, ok := addr.(*Addr)
	if !ok {
		return n
	}
	c := a.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.streams += n
	if !lasts {
		if c.mu.busy += n; c.mu.busy == maxBusy {
			c.wakeReader()
		}
	}
	return c.mu.streams
}

// Refuse counts and logs a stream that is refused.
func (h *H2) Refuse(addr net.Addr, reason error) {
	h.refused.Add(1)
	h.warn.Do(func() {
		h.log.Warn("a stream is refused", "remote", addr.String(), "reason", reason, "limit", "MaxOpenStreams", "refused", h.Refused())
	})
}
