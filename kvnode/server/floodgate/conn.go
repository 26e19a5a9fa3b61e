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

	// earned are the answers that were sent, ended the streams that the server has
	// ended. The writer adds, the reader takes.
	earned, ended atomic.Int64

	// The reader's own.
	in      scanner
	ages    ages
	balance int64 // what may be sent, or is owed if it is negative
	settled time.Time
	extra   int64  // what streams have for nothing
	crumbs  uint64 // short DATA
	dense   bool   // frames were short lately
	// open are the streams that nobody has ended, or a few less: one may be reset
	// by the client that the server has ended.
	open int64

	// The writer's own.
	out scanner
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	var earned, ended int64
	for f, rest, ok := c.out.next(p[:n]); ok; f, rest, ok = c.out.next(rest) {
		switch {
		case f.kind == frameHeaders && f.flags&flagEndStream != 0:
			ended++
		case f.kind == frameHeaders, f.kind == frameData:
			earned++
		case f.kind == frameReset && f.code != codeNone: // without trailers
			ended++
			if f.code != codeCancel {
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
	if ended != 0 {
		c.ended.Add(ended)
	}
	return n, err
}

// Read implements net.Conn. What floods is not returned before its turn, so that
// whoever sends it is slowed down by TCP, and nothing is kept for it.
func (c *conn) Read(p []byte) (int, error) {
	if c.dense {
		p = p[:min(len(p), denseRead)]
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	if c.dense && n == len(p) {
		runtime.Gosched() // there is more: others have their turn first
	}
	now := time.Now()
	c.ages.pass(now)
	c.open = max(0, c.open-c.ended.Swap(0))
	var t toll
	frames := 0
	for f, rest, ok := c.in.next(p[:n]); ok; f, rest, ok = c.in.next(rest) {
		c.charge(&t, &f)
		frames++
	}
	c.dense = frames*denseFrame > n
	if owed := c.earned.Load(); owed < 0 {
		c.earned.Add(-owed)
		t.owed, t.last = t.owed-owed, frameHeaders
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
		c.open++
		if f.flags&flagEndStream == 0 && c.open <= c.gate.streams {
			return
		}
		t.owed++ // a request without a message is none, one beyond the limit is refused
	case frameReset:
		c.open = max(0, c.open-1)
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
	idle := now.Sub(c.settled)
	c.balance = min(0, c.balance+min(most, int64(idle/each)))
	c.settled = now.Add(-idle % each)
}
