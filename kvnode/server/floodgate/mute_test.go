package floodgate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A member that stalls sends PING and SETTINGS all the same: they answer nobody.
func TestWhatIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1<<20)
		s := connect(t, g)
		s.alone = true
		for id := uint32(1); id < 6_000; id += 2 {
			s.send(raw(framePing, 0, 0, 8), raw(frameSettings, 0, 0, 6))
			time.Sleep(time.Millisecond)
			if err := errors.Join(s.receive(request(id)), s.receive(reset(id))); err != nil {
				t.Fatalf("after stream %d: %v, want nothing as nobody is answered", id, err)
			}
			if err := s.receive(append(raw(framePing, flagAck, 0, 8), raw(frameSettings, flagAck, 0, 0)...)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
