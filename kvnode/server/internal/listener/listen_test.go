package listener

import (
	"errors"
	"net"
	"testing"

	"go.uber.org/goleak"
)

// Several URLs for peers are one listener to the node.
func TestMerge(t *testing.T) {
	all := bind(t, "http://127.0.0.1:0", "http://127.0.0.1:0")
	m := Merge(all)
	for _, l := range all {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := m.Accept()
		if err != nil {
			t.Fatalf("Accept() = %v, want the connection to %v", err, l.Addr())
		}
		if accepted.LocalAddr().String() != l.Addr().String() {
			t.Errorf("Accept() has a connection to %v, want %v", accepted.LocalAddr(), l.Addr())
		}
		_, _ = conn.Close(), accepted.Close()
	}
	// Close does not wait for a connection that is not accepted.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", all[1].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		if err := m.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	if _, err := m.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after Close = %v, want net.ErrClosed", err)
	}
}

func bind(t *testing.T, urls ...string) []net.Listener {
	t.Helper()
	all, errs := Listen(t.Context(), "URLs", urls, Bare)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return all
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
