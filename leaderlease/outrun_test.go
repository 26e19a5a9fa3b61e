package leaderlease

import (
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/core"
)

// A reader that a renewal has outrun reads the clock once more: its reading is from
// before the view, and that is not the clock's fault.
func TestAReaderThatWasOutrunReadsTheClockAgain(t *testing.T) {
	c := &hookClock{}
	c.Advance(time.Hour)
	p := leading(t, func(cfg *Config) { cfg.Clock = c })
	c.hook = func() {
		c.Advance(ms)
		p.renew()
	}
	if _, _, s := p.check(); s != core.Valid {
		t.Errorf("check() = %v beside a renewal, want %v", s, core.Valid)
	}
}

// A ConfState told once too often turns leases off, and no more: the state machine is
// sound, so reads take a round.
func TestMisuseOfConfStateLeavesRounds(t *testing.T) {
	p := leading(t)
	p.ApplyConfState(voters(1, 2))
	p.want(core.Disabled)
	read := p.startRead()
	p.answer(p.asked(), p.last)
	if read.calls != 1 || read.err != nil || read.read.Path != PathReadIndex {
		t.Errorf("a read after it was answered %d times, %v by %v, want a round", read.calls, read.err, read.read.Path)
	}
}
