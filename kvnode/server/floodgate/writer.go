package floodgate

import (
	"net"
	"time"
)

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.pen <- struct{}{}
	began := time.Since(c.meter.began)
	c.since.Store(max(1, int64(began)))
	n, err := c.Conn.Write(p)
	ended := time.Since(c.meter.began)
	c.since.Store(-int64(ended))
	if ended-began > slowWrite {
		c.slow.Store(true)
	}
	c.wrote.Add(int64(n))
	<-c.pen
	c.credit(p[:n])
	return n, err
}

// credit counts what the frames of the server that were written pay for.
func (c *conn) credit(p []byte) {
	var earned int64
	answers := false
	for f, rest, ok := c.out.next(p); ok; f, rest, ok = c.out.next(rest) {
		switch {
		case f.kind == frameHeaders && f.flags&flagEndStream != 0:
			c.streams.end(f.stream)
		case f.kind == frameHeaders:
			earned++
			answers = true
		case f.kind == frameData:
			earned += perAnswer + perPiece*int64(f.length/pieceLen)
			answers = true
		case (f.kind == framePing || f.kind == frameSettings) && f.flags&flagAck == 0:
			earned++ // its acknowledgement
		case f.kind == frameReset:
			c.streams.end(f.stream)
			if f.code != codeNone && f.code != codeCancel {
				earned-- // the client has made the server reset it
			}
		}
	}
	if earned != 0 {
		c.earned.Add(earned)
	}
	if answers && !c.meter.answers.Load() {
		c.meter.answers.Store(true)
	}
}

// unstick waits while what was to be written is not taken, and while too much may be
// kept that was left.
func (c *conn) unstick(now time.Time) error {
	for c.left > maxLeft && c.slow.Load() && !c.catchUp() {
		if err := c.sleep(pause); err != nil {
			return err
		}
	}
	since := c.since.Load()
	if since <= 0 || now.Sub(c.meter.began)-time.Duration(since) < maxStuck {
		return nil
	}
	select {
	case c.pen <- struct{}{}:
		<-c.pen
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// catchUp reports whether what was left is kept no more, or enough was written for
// something else.
func (c *conn) catchUp() bool {
	if since := time.Duration(c.since.Load()); since <= 0 && time.Since(c.meter.began)+since >= pause {
		c.left = 0
		c.slow.Store(false)
		return true
	}
	wrote := c.wrote.Load()
	if wrote < c.due {
		return false
	}
	c.due = wrote + perLeft
	return true
}
