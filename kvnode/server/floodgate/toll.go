package floodgate

import "time"

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
	maxDebt = 1_000
	// maxSettings, in one Read, closes it whoever it is, and though nobody is answered.
	maxSettings = 4 * maxDebt
	debtTime    = 20 * time.Millisecond
	// While connections queue, debtTime is busyDebtTime, and no more than busyDebts
	// are forgiven at once. Less: a thousand connections get through what each alone
	// may. More: clients that send a PING now and then are closed in a flood.
	busyDebtTime = time.Second
	busyDebts    = 10
	// perStream is how many frames besides its requests each stream may have for
	// nothing: clients send a WINDOW_UPDATE to begin with, a short DATA that is their
	// last, or an empty one after it. What streams have saved up ends with maxCredit.
	perStream = 3
	// settingLen is how much of a SETTINGS counts as a frame of its own, and settingStreams
	// how many open streams do: gRPC looks at each of them when their window grows.
	// More: one SETTINGS of 16 KiB costs seconds of a processor.
	settingLen     = 60
	settingStreams = 128
	// perAnswer is what a DATA of the server pays for: gRPC's clients measure the
	// path with a PING for each, if nothing else is under way, and take a long stream
	// with window updates. With 1 a client that renewed one TTL lease as fast as it
	// was answered was closed after some 400 renewals.
	perAnswer = 2
	// perPiece is what each pieceLen of it pays for besides: Go's HTTP client, and the
	// proxies made of it, send two window updates for so much that they have read. With
	// 0 one that read 20 MB in such pieces was closed.
	perPiece = 2
	pieceLen = 4 << 10

	// One in crumbsPerFrame of those DATA counts that are shorter than crumbLen and
	// not the last of their stream: gRPC keeps 100 bytes and more for each, until
	// the message is complete. Streams of keep-alives are made of them, too.
	crumbLen       = 64
	crumbsPerFrame = 16
	// maxPadding is how much of a DATA may be padding, which counts as nothing: gRPC
	// gives its window back at once.
	maxPadding = 256
)

// toll is what one Read has to pay for.
type toll struct {
	owed int64 // frames that carried no request
	old  int64 // resets of streams that have waited for long
	last byte  // the newest frame of them
	// settings are those of owed that are for SETTINGS.
	settings int64
}

func (c *conn) charge(t *toll, f *frame) {
	switch f.kind {
	case frameHeaders:
		c.ages.newest = max(c.ages.newest, f.stream)
		c.extra = min(maxCredit, c.extra+perStream)
		c.begun++
		c.streams.begin(f.stream)
		if f.flags&flagEndStream == 0 {
			return
		}
		t.owed++ // a request without a message is none
	case frameReset:
		if c.streams.end(f.stream) {
			c.left++
		}
		if f.stream <= c.ages.old && c.begun > 0 {
			c.begun--
			t.old++
		} else {
			t.owed++
		}
	case frameSettings:
		if f.flags&flagAck != 0 {
			t.owed++ // gRPC looks at no stream for it
			break
		}
		cost := (1 + int64(f.length)/settingLen) * (1 + c.streams.count()/settingStreams)
		t.owed, t.settings = t.owed+cost, t.settings+cost
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
	length := f.length
	if f.flags&flagPadded != 0 {
		length = max(0, length-maxPadding)
	}
	switch {
	case length >= crumbLen:
		return false
	case length > 0 && f.flags&flagEndStream == 0:
		c.crumbs++
		return c.crumbs%crumbsPerFrame == 0
	case c.extra > 0:
		c.extra--
		return false
	}
	return true
}

// pay takes what is owed from the balance and, where that has nothing, waits until
// it is its turn.
func (c *conn) pay(now time.Time, t toll) error {
	if t.settings > maxSettings {
		return c.meter.refuse(c.Conn, t.last)
	}
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
	c.meter.held.Add(uint64(owed + old))
	most, spared := maxWait, c.member()
	if !spared && owed > 0 && c.meter.mute(now) {
		most, spared = maxMuteWait, true
	}
	if spared {
		c.balance, owed, old = max(c.balance, -maxDebt/2), 0, owed+old
	}
	if owed > 0 {
		c.forgive(now)
	}
	if c.balance < -maxDebt {
		return c.meter.refuse(c.Conn, t.last)
	}
	wait, late := turn(c.meter.allowance, now, owed, most)
	if late && c.balance < 0 {
		return c.meter.refuse(c.Conn, t.last)
	}
	patient, _ := turn(c.meter.patient, now, old, most)
	return c.sleep(max(wait, patient))
}

// forgive forgives debts with time.
func (c *conn) forgive(now time.Time) {
	each, most := debtTime, int64(maxDebt)
	if c.meter.busy(now) {
		each, most = busyDebtTime, busyDebts
	}
	idle := now.Sub(c.reckoned)
	c.balance = min(0, c.balance+min(most, int64(idle/each)))
	c.reckoned = now.Add(-idle % each)
}
