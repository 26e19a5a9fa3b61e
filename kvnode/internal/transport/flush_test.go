package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
)

// Flush returns when a message is written, so that it arrives though everything is closed next;
// and no later than it may, where there is nobody to write it to.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := begin(t, net, &fakeNode{id: 1})
		a.SetPeer(2, []string{addrOf(2)})
		send(a, heartbeat(1, 2, 1))
		begun := time.Now()
		if a.Flush(2, 30*time.Millisecond) || time.Since(begun) != 30*time.Millisecond {
			t.Errorf("Flush() = true, or not after 30ms but %v: nobody is there", time.Since(begun))
		}
		if a.Flush(3, time.Hour) {
			t.Error("Flush() to who is no peer = true, want false")
		}
		b := begin(t, net, &fakeNode{id: 2})
		b.SetPeer(1, []string{addrOf(1)})
		settled()
		before := len(b.got())
		send(a, heartbeat(1, 2, 2))
		if !a.Flush(2, time.Second) {
			t.Error("Flush() = false, want true")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		settled()
		if got := b.got(); len(got) != before+1 {
			t.Errorf("member 2 got %v, want one message more than %d", got, before)
		}
	})
}
