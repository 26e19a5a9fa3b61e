package transport

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/tlsconf"
	"github.com/leaderlease/go/kvnode/tlsconf/tlstest"
	"github.com/leaderlease/go/kvnode/transport/memlink"
)

// few is an adjustment for begin that makes places short.
func few(_ *Config, lim *limits) { lim.strangers.Guests, lim.reserve.Guests = 4, 4 }

// Whoever says nothing, or dials again and again, keeps no member out: neither
// strangers, nor others on the member's own host.
func TestStrangersKeepNobodyOut(t *testing.T) {
	for _, from := range []uint64{1, 9} {
		synctest.Test(t, func(t *testing.T) {
			network := memlink.New()
			b := begin(t, network, &fakeNode{id: 2}, few)
			stop := make(chan struct{})
			flooded := make(chan struct{})
			var calls []net.Conn
			go func() {
				defer close(flooded)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						calls = append(calls, dialRaw(t, network, from, 2))
					}
				}
			}()
			time.Sleep(100 * time.Millisecond)
			a := begin(t, network, &fakeNode{id: 1})
			acquaint(a, b)
			settled()
			if !a.peerOf(t, 2).Connected || !b.peerOf(t, 1).Connected {
				t.Errorf("a flood from n%d: %q, %q, want both connected", from, a.peerOf(t, 2).LastError, b.peerOf(t, 1).LastError)
			}
			close(stop)
			<-flooded
			s := b.hall.Stats()
			for _, c := range calls {
				_ = c.Close()
			}
			if s.Cut < 90 || s.Guests > 8 {
				t.Errorf("%+v after a flood, want most of it cut", s)
			}
		})
	}
}

// A place for a peer is not taken by strangers, be the peer where its addresses
// say, or where it came from last.
func TestPlacesForPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		elsewhere := func(c *Config, _ *limits) { c.Dial = network.Dialer("n7") }
		a, b := begin(t, network, &fakeNode{id: 1}, elsewhere), begin(t, network, &fakeNode{id: 2}, few)
		if b.Knows("n1") || b.Knows("n7") {
			t.Error("Knows() of a host where no peer is = true, want false")
		}
		b.SetPeer(1, []string{"n3:1", addrOf(1)})
		a.SetPeer(2, []string{addrOf(2)})
		time.Sleep(2 * time.Second)
		for _, host := range []string{"n1", "n3", "n7"} {
			if !b.Knows(host) {
				t.Errorf("Knows(%s) = false, want true", host)
			}
		}
		slow := dialRaw(t, network, 1, 2)
		defer slow.Close()
		for i := range uint64(10) {
			c := dialRaw(t, network, 10+i, 2)
			t.Cleanup(func() { _ = c.Close() })
		}
		synctest.Wait()
		// Not bulk: member 1 would take that slot back, at times before slow is answered.
		if p := speak(t, slow, snapshots, helloTo(1, 2)); p.kind != answerOK {
			t.Errorf("a slow member is answered with kind %d, want %d", p.kind, answerOK)
		}
		b.RemovePeer(1)
		if b.Knows("n1") || b.Knows("n7") {
			t.Error("Knows() of a removed peer's host = true, want false")
		}
	})
}

// Where a peer's name leads is known once it was dialled, even if nobody answers.
func TestWherePeersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		ln, err := network.Listen(addrOf(1))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		b := begin(t, network, &fakeNode{id: 2}, func(c *Config, _ *limits) {
			c.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return network.Dial(ctx, hostOf(2), addrOf(1)) }
		})
		b.SetPeer(1, []string{"member-one.example:1"})
		settled()
		if !b.Knows("n1") || b.Knows("n2") {
			t.Errorf("Knows() = %v of the host that was dialled, %v of this one, want true and false", b.Knows("n1"), b.Knows("n2"))
		}
	})
}

// Handshakes without a certificate end before anything is computed for them, once
// there were too many; a member on another host does not notice.
func TestFailingHandshakesAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		b := begin(t, network, &fakeNode{id: 2}, s.apply, func(_ *Config, lim *limits) {
			lim.strangers.PerHost, lim.strangers.Total = 1, 10
		})
		for range 10 {
			raw := dialRaw(t, network, 9, 2)
			_ = tls.Client(raw, &tls.Config{RootCAs: trusting(s.ca), ServerName: "n2", NextProtos: []string{tlsconf.PeerProtocol}}).Handshake()
			_ = raw.Close()
		}
		synctest.Wait()
		if st := b.hall.Stats(); st.Throttled != 8 || b.totals.garbled.Load() != 2 {
			t.Errorf("%+v, %d handshakes failed, want 8 of 10 throttled", st, b.totals.garbled.Load())
		}
		a := begin(t, network, &fakeNode{id: 1}, s.apply)
		acquaint(a, b)
		settled()
		if !a.peerOf(t, 2).Connected {
			t.Errorf("a member is not connected: %s", a.peerOf(t, 2).LastError)
		}
	})
}

// A member whose certificate is wrong tries for long, and is in soon after it was
// put right, also where strangers have very few handshakes.
func TestACertificatePutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		a := begin(t, network, &fakeNode{id: 1}, s.apply)
		b := begin(t, network, &fakeNode{id: 2}, s.apply)
		other := tlstest.New(t, "other")
		tlstest.Write(t, s.dirs[1], "ca", slices.Concat(other.PEM, s.ca.PEM))
		other.Issue([]string{hostOf(1)}).Write(s.dirs[1], "own")
		time.Sleep(2 * time.Second)
		// Of two handshakes that come first, one would still use the old files.
		s.sources[1].Stats()
		acquaint(a, b)
		time.Sleep(time.Minute)
		if a.peerOf(t, 2).Connected || b.totals.garbled.Load() < 60 {
			t.Fatalf("connected: %v after %d handshakes that failed, want not, and many", a.peerOf(t, 2).Connected, b.totals.garbled.Load())
		}
		s.ca.Issue([]string{hostOf(1)}).Write(s.dirs[1], "own")
		time.Sleep(3 * time.Second)
		if p := a.peerOf(t, 2); !p.Connected || !p.Streams[bulk].Connected || b.hall.Stats().Throttled != 0 {
			t.Errorf("3s after it was put right: %q, %+v, want connected", p.LastError, b.hall.Stats())
		}
	})
}
