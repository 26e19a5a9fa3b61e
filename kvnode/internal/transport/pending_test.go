package transport

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
)

// few makes a member with few pending connections.
func few(_ *Config, lim *limits) { lim.pending = 4 }

// Silent connections, from other hosts or from the peer's own, do not lock a peer out.
func TestSilentConnectionsDoNotLockOutAPeer(t *testing.T) {
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
			s := b.port.Stats()
			for _, c := range calls {
				_ = c.Close()
			}
			if s.Evicted < 90 || s.Pending > 4 {
				t.Errorf("%+v after a flood, want most connections evicted", s)
			}
		})
	}
}

// A member with a wrong certificate is connected soon after the certificate was
// replaced.
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
		if p := a.peerOf(t, 2); !p.Connected || !p.Streams[bulk].Connected {
			t.Errorf("3s after the certificate was replaced: %q, want connected", p.LastError)
		}
	})
}
