package arrivals

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/leaderlease/go/kvnode/transport/memlink"
)

// A listener's connections are guests, also below TLS, and places are free again
// when they are closed.
func TestListener(t *testing.T) {
	network := memlink.New()
	ln, err := network.Listen("n1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := small()
	cfg.Open = 1
	h := New(cfg)
	l := h.Listener(ln, true)
	accept := func() net.Conn {
		t.Helper()
		c, err := network.Dial(t.Context(), "n2", "n1:1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := accept()
	if g := Of(tls.Server(first, nil)); g == nil || g != Of(first) {
		t.Fatalf("Of() = %p below TLS, %p without, want the same guest", g, Of(first))
	}
	if half, ok := first.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		t.Error("one end of a connection cannot be closed any more")
	}
	second := accept() // the first makes room
	if !Of(first).Cut() || Of(second).Cut() {
		t.Error("the second connection is closed, want the first")
	}
	Of(second).Introduce()
	_ = second.Close()
	if third := accept(); Of(third).Cut() || h.Stats().Shed != 0 {
		t.Errorf("Stats() = %+v, want the place of a closed connection free", h.Stats())
	}
	if Of(callFrom("1.0.0.1")) != nil {
		t.Error("Of() a connection of no hall is a guest")
	}
}
