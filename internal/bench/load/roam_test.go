package load

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAProcessIsWhatClientsSeeOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Process
		c := p.Guard(newRegister(0))
		ask := func() (read, write error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, read = c.Read(ctx, 0)
			_, write = c.Write(ctx, 0)
			return read, write
		}
		if read, write := ask(); read != nil || write != nil {
			t.Errorf("running: %v, %v, want answers", read, write)
		}
		p.Kill()
		if read, write := ask(); !errors.Is(read, ErrDown) || !errors.Is(write, ErrDown) {
			t.Errorf("dead: %v, %v, want %v", read, write, ErrDown)
		}
		p.Pause()
		begin := time.Now()
		if read, _ := ask(); !errors.Is(read, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("paused: %v after %v, want no answer for as long as the client waits", read, time.Since(begin))
		}
	})
}

// A process that dies while it answers has not answered.
func TestWhatADyingMemberAnswersIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Process
		c := p.Guard(newRegister(10 * time.Millisecond))
		time.AfterFunc(5*time.Millisecond, p.Kill)
		if _, err := c.Read(t.Context(), 0); !errors.Is(err, ErrDown) {
			t.Errorf("Read() = %v, want %v", err, ErrDown)
		}
	})
}

func TestClientsGoOnToTheNextMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes := make([]Process, 3)
		var members []Client
		for i := range processes {
			members = append(members, processes[i].Guard(newRegister(0)))
		}
		processes[2].Kill()
		processes[0].Kill()
		c := Roam{Members: members, First: 2}.Client(0)
		var errs []bool
		for range 3 {
			_, err := c.Read(t.Context(), 0)
			errs = append(errs, err != nil)
		}
		if _, err := c.Write(t.Context(), 0); err != nil || !errs[0] || !errs[1] || errs[2] {
			t.Errorf("members 2 and 0 are dead: failures %v and then %v, want two failures and service by member 1", errs, err)
		}
	})
}
