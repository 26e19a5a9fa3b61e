package arrivals

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// call is a connection from somewhere.
type call struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *call) RemoteAddr() net.Addr { return c.from }

func (c *call) Close() error {
	c.closed = true
	return nil
}

func callFrom(host string) *call {
	return &call{from: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 1234))}
}

// enter lets a connection from a host come.
func enter(h *Hall, host string) (*Guest, *call) {
	c := callFrom(host)
	g, _ := h.Enter(c, true)
	return g, c
}

// small has eight places for strangers, of which a host keeps one if they run
// short, and two for hosts that begin with 10.
func small() Config {
	return Config{
		Strangers: Bounds{Guests: 8, PerHost: 1, Total: 4},
		Reserve:   Bounds{Guests: 2, PerHost: 5, Total: 10},
		Known:     func(host string) bool { return strings.HasPrefix(host, "10.") },
	}
}

// Whoever comes finds a place; who has said nothing for the longest loses it.
func TestTheMostSilentIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		var guests []*Guest
		var calls []*call
		for i := range 8 {
			g, c := enter(h, string(rune('1'+i))+".0.0.1")
			guests, calls = append(guests, g), append(calls, c)
			time.Sleep(time.Millisecond)
		}
		guests[0].Alive()
		enter(h, "9.0.0.1")
		for i, c := range calls {
			if c.closed != (i == 1) {
				t.Errorf("guest %d is closed: %v, want the second alone, since the first has spoken", i, c.closed)
			}
		}
		if !guests[1].Cut() || guests[1].Introduce() || guests[0].Cut() || !guests[0].Introduce() {
			t.Error("the second guest can introduce, or the first cannot")
		}
		// Who has spoken is waited for, but not for ever.
		guests[2].Alive()
		time.Sleep(patience + time.Millisecond)
		for i := range 7 {
			enter(h, string(rune('1'+i))+".9.0.1")
		}
		if calls[2].closed {
			t.Error("a guest that had spoken was cut before those that said nothing for as long")
		}
		enter(h, "9.9.0.1")
		if !calls[2].closed {
			t.Error("a guest that had spoken long ago is there, and a younger one was cut")
		}
	})
}

// One host cannot take the places of others, however often it calls.
func TestAHostKeepsItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		_, first := enter(h, "1.0.0.1")
		time.Sleep(time.Second)
		var last *call
		for range 100 {
			_, last = enter(h, "2.0.0.1")
		}
		if first.closed || last.closed {
			t.Errorf("the only call of a host is closed: %v, the last of a flood: %v, want neither", first.closed, last.closed)
		}
		_, other := enter(h, "3.0.0.1")
		if first.closed || other.closed {
			t.Errorf("two calls of other hosts are closed: %v, %v, want neither", first.closed, other.closed)
		}
		if s := h.Stats(); s.Guests != 8 || s.Cut != 94 || s.Shed != 0 || s.Open != 8 {
			t.Errorf("Stats() = %+v, want 8 guests and 94 cut", s)
		}
	})
}

// All addresses of one owner count as one.
func TestOwners(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8:0:1:2:3:4:5]:80": "2001:db8:0:1::/64", "[fe80::1%eth0]:1": "fe80::/64", "n1:80": "n1", "pipe": "pipe",
	} {
		if got := shared(Host(addr)); got != want {
			t.Errorf("the owner of %s = %s, want %s", addr, got, want)
		}
	}
	if a, b := Host("[2001:DB8::0:1]:80"), Host("[2001:db8::1]:90"); a != b {
		t.Errorf("Host() = %s and %s, want one spelling", a, b)
	}
}

// Strangers do not get what is kept for those who are known.
func TestTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		slow, known := enter(h, "10.0.0.1")
		for i := range 100 {
			enter(h, string(rune('1'+i%8))+".0.0.1")
		}
		for range 100 {
			if g, _ := enter(h, "1.0.0.1"); g != nil {
				_ = g.Work() // one handshake that leads nowhere after the other
			}
		}
		if known.closed || slow.Work() != nil || !slow.Introduce() {
			t.Errorf("who is known is closed: %v, or cannot shake hands for strangers", known.closed)
		}
	})
}

// Handshakes that lead nowhere run out, by host and in all; those that lead
// somewhere do not.
func TestHandshakesThatLeadNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		works := func(host string, introduce bool) bool { return works(t, h, host, introduce) }
		for range 20 {
			if !works("1.0.0.1", true) {
				t.Fatal("Work() of a host whose handshakes succeed = an error, want none")
			}
		}
		saved := 0
		for works("1.0.0.1", false) {
			saved++
		}
		if saved != 2 {
			t.Fatal("a host with one handshake a second has saved up something else than two")
		}
		if g, c := enter(h, "1.0.0.1"); !c.closed || g != nil {
			t.Error("a host that has no handshakes left was let in")
		}
		time.Sleep(time.Second)
		if !works("1.0.0.1", false) || works("1.0.0.1", false) {
			t.Error("a second later there is something else than one handshake")
		}
		allShare(t, func(host string) bool { return works(host, false) })
		if !works("10.0.0.1", false) {
			t.Error("who is known waits for strangers")
		}
		if s := h.Stats(); s.Throttled < 90 || s.Guests != 0 || s.Open != 0 {
			t.Errorf("Stats() = %+v, want the others throttled and nobody there", s)
		}
	})
}

// works reports whether a guest from host may shake hands, and has it come in or not.
func works(t *testing.T, h *Hall, host string, introduce bool) bool {
	t.Helper()
	g, in := h.Enter(callFrom(host), true)
	if !in {
		return false
	}
	defer g.Leave()
	ok := g.Work() == nil
	if again := g.Work() == nil; again != ok {
		t.Errorf("Work() of one guest passes: %v, then %v", ok, again)
	}
	if introduce {
		g.Introduce()
	}
	return ok
}

// allShare expects four handshakes a second in all, of which eight are saved up, and
// two have come back.
func allShare(t *testing.T, fails func(host string) bool) {
	t.Helper()
	n := 0
	for i := range 100 {
		if fails(string(rune('2'+i%8)) + ".0.0.1") {
			n++
		}
	}
	if n < 6 || n > 8 {
		t.Errorf("%d handshakes of all hosts pass, want about 7", n)
	}
}

// A connection counts until it is closed. If there may be no more, guests make
// room; those that have introduced do not.
func TestOpenConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.Open = 3
		h := New(cfg)
		var introduced []*Guest
		for range 2 {
			g, _ := enter(h, "1.0.0.1")
			g.Introduce()
			introduced = append(introduced, g)
		}
		_, waiting := enter(h, "1.0.0.1")
		g, _ := enter(h, "2.0.0.1")
		if !waiting.closed || !g.Introduce() {
			t.Error("a guest did not make room for another")
		}
		if _, c := enter(h, "3.0.0.1"); !c.closed {
			t.Error("a fourth connection was let in, want three")
		}
		introduced[0].Leave()
		introduced[0].Leave()
		_, waiting = enter(h, "3.0.0.1")
		if _, c := enter(h, "10.0.0.1"); c.closed || !waiting.closed {
			t.Error("a stranger that waits did not make room for who is known")
		}
		if _, c := enter(h, "4.0.0.1"); !c.closed {
			t.Error("who is known made room for a stranger")
		}
		if s := h.Stats(); s.Open != 3 || s.Shed != 2 || s.Cut != 2 {
			t.Errorf("Stats() = %+v, want 3 open, 2 shed and 2 cut", s)
		}
	})
}

// Handshakes that have failed keep nobody out who makes none, nor who comes over a
// unix socket.
func TestWhoMakesNoHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		for i := range 100 {
			if g, _ := enter(h, string(rune('1'+i%8))+".0.0.1"); g != nil {
				_ = g.Work()
				g.Leave()
			}
		}
		if _, c := enter(h, "1.0.0.1"); !c.closed {
			t.Error("a host that has no handshakes left was let in")
		}
		if _, ok := h.Enter(callFrom("1.0.0.1"), false); !ok {
			t.Error("who speaks plain text is kept out by handshakes of others")
		}
		local := &call{from: &net.UnixAddr{Name: "@", Net: "unix"}}
		if g, ok := h.Enter(local, true); !ok || g.Work() != nil {
			t.Error("who comes over a unix socket is kept out by strangers")
		}
	})
}

// Who is known takes the place of a stranger first if connections run out.
func TestStrangersMakeRoomFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.Open = 3
		h := New(cfg)
		_, known := enter(h, "10.0.0.1")
		time.Sleep(time.Second)
		var strangers []*call
		for _, host := range []string{"1.0.0.1", "2.0.0.1"} {
			_, c := enter(h, host)
			strangers = append(strangers, c)
			time.Sleep(time.Millisecond)
		}
		_, second := enter(h, "10.0.0.2")
		if known.closed || second.closed || !strangers[0].closed || strangers[1].closed {
			t.Errorf("closed: %v and %v of those who are known, %v and %v of the strangers, want the first stranger alone",
				known.closed, second.closed, strangers[0].closed, strangers[1].closed)
		}
		// Its own places are bounded all the same.
		if _, third := enter(h, "10.0.0.3"); third.closed || !known.closed || strangers[1].closed {
			t.Error("a third one that is known did not take the place of the first")
		}
	})
}

// A guest that is gone is asked for nothing more, and its place is free once.
func TestGoneIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(small())
		g, _ := enter(h, "1.0.0.1")
		for range 2 {
			if !g.Introduce() || g.Work() != nil {
				t.Error("a guest cannot introduce twice")
			}
		}
		g.Leave()
		if g.Introduce() || !errors.Is(g.Work(), net.ErrClosed) {
			t.Error("a guest that has left can introduce")
		}
		var nobody *Guest
		nobody.Alive()
		nobody.Leave()
		if !nobody.Introduce() || nobody.Cut() || nobody.Work() != nil || Work(nobody.Context(t.Context())) != nil || Work(t.Context()) != nil {
			t.Error("the guest of no hall is refused something")
		}
		if s := h.Stats(); s != (Stats{}) {
			t.Errorf("Stats() = %+v, want nothing", s)
		}
	})
}

// What strangers do is logged, but not as often as they do it.
func TestWhatIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		cfg := small()
		cfg.Port, cfg.Logger = "peer", slog.New(slog.NewTextHandler(&out, nil))
		h := New(cfg)
		for range 1000 {
			enter(h, "1.0.0.1")
			time.Sleep(11 * time.Millisecond)
		}
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.Contains(out.String(), "port=peer now=1.0.0.1") {
			t.Errorf("%d lines in 11s, want 2 that name port and address:\n%s", n, out.String())
		}
	})
}
