package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
)

// Two members connect within milliseconds of each other's start, and messages
// arrive as they were sent, including what raft does not know.
func TestMessagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		m := heartbeat(1, 2, 7)
		m.ProtoReflect().SetUnknown([]byte("\xd2\xec\x22\x04\x01\x01\x05\x06")) // a probe of the lease library
		app := appendOf(1, 2, 1, []byte("x"))
		send(a, m, app)
		send(b, heartbeat(2, 1, 8))
		synctest.Wait()
		got := b.got()
		if len(got) != 2 {
			t.Fatalf("member 2 got %d messages, want 2", len(got))
		}
		for _, g := range got {
			want := m
			if g.GetType() == app.GetType() {
				want = app
			}
			if !proto.Equal(g, want) || g == want {
				t.Errorf("member 2 got %v, want a copy of %v", g, want)
			}
		}
		if got := a.got(); len(got) != 1 || got[0].GetCommit() != 8 {
			t.Errorf("member 1 got %v, want one heartbeat", got)
		}
		if h := a.connections(); len(h) != 1 || h[0] != helloTo(2, 1) {
			t.Errorf("Connected() was called with %v, want %v", h, helloTo(2, 1))
		}
		if p := a.peerOf(t, 2); !p.Connected || p.Sent != 2 || p.Lost != 0 || p.Hello.Name != "n2" {
			t.Errorf("Peers() = %+v, want connected, 2 sent, 0 lost", p)
		}
	})
}

func helloTo(from, to uint64) Hello {
	h := helloOf(from)
	h.To = to
	return h
}
