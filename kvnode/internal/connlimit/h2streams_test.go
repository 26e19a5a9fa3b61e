package connlimit

import (
	"net"
	"strings"
	"testing"
)

// All connections share the streams, and one leaves as many free as it has. Streams
// that last leave room for requests that end them.
func TestConnectionsShareTheStreams(t *testing.T) {
	h := newH2(100)
	one, _ := connect(t, h)
	two, _ := connect(t, h)
	var ends []func()
	fill := func(addr net.Addr, lasts bool) (n int) {
		t.Helper()
		for n <= 100 {
			end, err := h.Begin(addr, lasts)
			if err != nil {
				if !strings.Contains(err.Error(), "of 100 at most") {
					t.Errorf("Begin() = %v, want it to name the limit", err)
				}
				return n
			}
			ends = append(ends, end)
			n++
		}
		return n
	}
	if n := fill(one.RemoteAddr(), true); n != 33 {
		t.Errorf("a connection that is alone has %d streams that last, want 33", n)
	}
	if n := fill(one.RemoteAddr(), false); n != 17 {
		t.Errorf("besides it has %d requests, want 17", n)
	}
	if n := fill(two.RemoteAddr(), false); n != 25 {
		t.Errorf("the second connection has %d requests, want 25", n)
	}
	if n := fill(new(net.TCPAddr), true); n != 23 {
		t.Errorf("%d requests that last come another way, want 23", n)
	}
	if h.Open() != 98 || h.Refused() != 4 {
		t.Errorf("%d are open and %d were refused, want 98 and 4", h.Open(), h.Refused())
	}
	for _, end := range ends {
		end()
	}
	if n := fill(two.RemoteAddr(), false); n != 50 {
		t.Errorf("a connection has %d requests after all have ended, want 50", n)
	}
}
