package floodgate

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// startCredit is what a connection may send before anything was answered:
	// SETTINGS, the acknowledgement of the server's, PING and WINDOW_UPDATE. More:
	// whoever is closed and connects anew has as many more.
	startCredit = 32
	// maxCredit is how many answers may be saved up. More: a client can make gRPC
	// hold that many streams that it has reset. Fewer: one whose requests have
	// deadlines of less than half a second loses its connection in an election.
	maxCredit = 2_000
	// maxDebt closes a connection. One frame of it is forgiven each debtTime.
	maxDebt  = 1_000
	debtTime = 20 * time.Millisecond
	// While connections queue, debtTime is busyDebtTime, and no more than busyDebts
	// are forgiven at once. Less: a thousand connections get through what each alone
	// may. More: clients that send a PING now and then are closed in a flood.
	busyDebtTime = time.Second
	busyDebts    = 10
	// perStream is how many frames besides its requests each stream may have for
	// nothing: clients send a WINDOW_UPDATE to begin with, and an empty DATA in the
	// end. What streams have saved up ends with maxCredit.
	perStream = 2
	// settingLen is how much of a SETTINGS counts as a frame of its own.
	settingLen = 60
	// perAnswer is what a DATA of the server pays for: gRPC's clients measure the
	// path with a PING for each, if nothing else is under way, and take a long stream
	// with window updates. With 1 a client that renewed one TTL lease as fast as it
	// was answered was closed after some 400 renewals.
	perAnswer = 2

	// One in crumbsPerFrame of those DATA counts that are shorter than crumbLen and
	// not the last of their stream: gRPC keeps 100 bytes and more for each, until
	// the message is complete. Streams of keep-alives are made of them, too.
	crumbLen       = 64
	crumbsPerFrame = 16
	// From whom sends frames shorter than denseFrame denseRead bytes are taken at a
	// time. More: gRPC's reader, which never waits if there is always more, keeps a
	// processor for milliseconds, and twenty of them all others, the raft loop too,
	// for hundreds. Less: more system calls.
	denseFrame = 512
	denseRead  = 4 << 10
)

// conn is a connection whose frames are counted.
type conn struct {
	net.Conn // immutable, as all of this block
	gate     *Gate
	member   func() bool
	closing  sync.Once
	closed   chan struct{}

	streams streams
	// earned are the answers that were sent. The writer adds, the reader takes.
	earned atomic.Int64
	// pen is full while something is written, and since says when that began, after
	// the gate was made; 0 if nothing is.
	pen   chan struct{}
	since atomic.Int64

	// The reader's own.
	in       scanner
	ages     ages
	balance  int64 // what may be sent, or is owed if it is negative
	reckoned time.Time
	extra    int64  // what streams have for nothing
	crumbs   uint64 // short DATA
	dense    bool   // frames were short lately
	heads    bool   // the newest frame is of those that begin a stream
	headed   bool   // and was their last
	refused  int64  // streams, lately
	later    []byte // what was read beyond one stream, in buffer
	buffer   *[]byte

	// The writer's own.
	out scanner
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		c.streams.leave()
	})
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.pen <- struct{}{}
	c.since.Store(max(1, int64(time.Since(c.gate.began))))
	n, err := c.Conn.Write(p)
	c.since.Store(0)
	<-c.pen
	var earned int64
	for f, rest, ok := c.out.next(p[:n]); ok; f, rest, ok = c.out.next(rest) {
		switch {
		case f.kind == frameHeaders && f.flags&flagEndStream != 0:
			c.streams.end(f.stream)
		case f.kind == frameHeaders:
			earned++
		case f.kind == frameData:
			earned += perAnswer
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
	if earned > 0 && !c.gate.answers.Load() {
		c.gate.answers.Store(true)
	}
	return n, err
}

// Read implements net.Conn. What floods is not returned before its turn, so that
// whoever sends it is slowed down by TCP, and nothing is kept for it; nor is
// anything while answers are not taken. At most one stream begins in what is
// returned, so that Permit can tell which is meant.
func (c *conn) Read(p []byte) (int, error) {
	data, err := c.take(p)
	if len(data) == 0 {
		return 0, err
	}
	now := time.Now()
	c.ages.pass(now)
	t := toll{old: c.refused, last: frameHeaders}
	c.refused = 0
	n := c.scan(&t, data)
	c.keep(p, data, n)
	if owed := c.earned.Load(); owed < 0 {
		c.earned.Add(-owed)
		t.owed, t.last = t.owed-owed, frameHeaders
	}
	if n < len(data) {
		err = nil // it comes again
	}
	if stuck := c.unstick(now); stuck != nil {
		return 0, stuck
	}
	if t.owed+t.old == 0 {
		return n, err
	}
	if refused := c.pay(now, t); refused != nil {
		_ = c.Close() // it is told nothing, for it need not read
		return 0, refused
	}
	return n, err
}

// take returns what is to be looked at next: what is left, or what is read into p.
func (c *conn) take(p []byte) ([]byte, error) {
	if c.later != nil {
		return c.later[:min(len(c.later), len(p))], nil
	}
	if c.dense {
		p = p[:min(len(p), denseRead)]
	}
	n, err := c.Conn.Read(p)
	if c.dense && n == len(p) {
		runtime.Gosched() // there is more: others have their turn first
	}
	return p[:n], err
}

// scan charges for what is in p, and returns how much of it comes before a second
// stream begins.
func (c *conn) scan(t *toll, p []byte) int {
	frames, n := 0, len(p)
	begun := c.heads && (c.in.skip > 0 || !c.headed)
	for f, rest, ok := c.in.next(p); ok; f, rest, ok = c.in.next(rest) {
		at := len(p) - len(rest) - headerLen
		if f.kind == frameHeaders && begun && at > 0 {
			c.in, n = scanner{}, at // its header is read again
			break
		}
		begun = begun || f.kind == frameHeaders
		c.heads = f.kind == frameHeaders || f.kind == frameContinuation
		c.headed = f.flags&flagEndHeaders != 0
		c.charge(t, &f)
		frames++
	}
	c.dense = frames*denseFrame > n
	return n
}

// spare are buffers for what is left of a read.
var spare = sync.Pool{New: func() any { return new(make([]byte, 0, 32<<10)) }}

// keep has the first n bytes of data in p, and the others returned later.
func (c *conn) keep(p, data []byte, n int) {
	switch {
	case c.later != nil:
		copy(p, data[:n])
		if c.later = c.later[n:]; len(c.later) == 0 {
			c.later = nil
			spare.Put(c.buffer)
			c.buffer = nil
		}
	case n < len(data):
		c.buffer, _ = spare.Get().(*[]byte)
		*c.buffer = append((*c.buffer)[:0], data[n:]...)
		c.later = *c.buffer
	}
}

// unstick waits while what was to be written is not taken.
func (c *conn) unstick(now time.Time) error {
	since := c.since.Load()
	if since == 0 || now.Sub(c.gate.began)-time.Duration(since) < maxStuck {
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

// toll is what one Read has to pay for.
type toll struct {
	owed int64 // frames that carried no request
	old  int64 // resets of streams that have waited for long
	last byte  // the newest frame of them
}

func (c *conn) charge(t *toll, f *frame) {
	switch f.kind {
	case frameHeaders:
		c.ages.newest = max(c.ages.newest, f.stream)
		c.extra = min(maxCredit, c.extra+perStream)
		c.streams.begin(f.stream)
		if f.flags&flagEndStream == 0 {
			return
		}
		t.owed++ // a request without a message is none
	case frameReset:
		c.streams.end(f.stream)
		if f.stream <= c.ages.old {
			t.old++
		} else {
			t.owed++
		}
	case frameSettings:
		t.owed += 1 + int64(f.length)/settingLen
	case frameData:
		if !c.idle(f) {
			return
		}
		t.owed++
	case frameWindowUpdate, framePriority:
		if c.extra > 0 {
			c.extra--
			return
		}
		t.owed++
	default:
		t.owed++
	}
	t.last = f.kind
}

// idle reports whether a DATA is to be counted.
func (c *conn) idle(f *frame) bool {
	switch {
	case f.length == 0 && c.extra > 0:
		c.extra--
		return false
	case f.length == 0:
		return true
	case f.length >= crumbLen || f.flags&flagEndStream != 0:
		return false
	}
	c.crumbs++
	return c.crumbs%crumbsPerFrame == 0
}

// pay takes what is owed from the balance and, where that has nothing, waits until
// it is its turn.
func (c *conn) pay(now time.Time, t toll) error {
	c.balance -= t.owed
	if c.balance < t.old {
		c.balance = min(maxCredit, c.balance+c.earned.Swap(0))
	}
	owed := min(t.owed, max(0, -c.balance))
	old := max(0, t.old-max(0, c.balance))
	c.balance -= t.old - old
	if owed+old == 0 {
		return nil
	}
	c.gate.held.Add(uint64(owed + old))
	most, spared := maxWait, c.member()
	if !spared && owed > 0 && c.gate.mute(now) {
		most, spared = maxMuteWait, true
	}
	if spared {
		c.balance, owed, old = max(c.balance, -maxDebt/2), 0, owed+old
	}
	if owed > 0 {
		c.forgive(now)
	}
	if c.balance < -maxDebt {
		return c.gate.refuse(c.Conn, t.last)
	}
	wait, late := turn(c.gate.allowance, now, owed, most)
	if late && c.balance < 0 {
		return c.gate.refuse(c.Conn, t.last)
	}
	patient, _ := turn(c.gate.patient, now, old, most)
	return c.sleep(max(wait, patient))
}

// sleep waits, or until the connection is closed.
func (c *conn) sleep(wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	turn := time.NewTimer(wait)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// forgive forgives debts with time.
func (c *conn) forgive(now time.Time) {
	each, most := debtTime, int64(maxDebt)
	if c.gate.busy(now) {
		each, most = busyDebtTime, busyDebts
	}
	idle := now.Sub(c.reckoned)
	c.balance = min(0, c.balance+min(most, int64(idle/each)))
	c.reckoned = now.Add(-idle % each)
}
