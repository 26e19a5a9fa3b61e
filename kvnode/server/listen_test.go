package server

import (
	"errors"
	"net"
	"testing"
)

// Several URLs for peers are one listener to the node.
func TestMerge(t *testing.T) {
	all := []net.Listener{ephemeral(t), ephemeral(t)}
	m := merge(all)
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
	// One more that nobody accepts must not hold up Close.
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

// A server with several URLs for everything.
func TestSeveralURLs(t *testing.T) {
	url := func() string { return "http://" + free(t) }
	s := solo(t, func(c *Config) {
		c.closeListeners()
		c.Node.Listener, c.ClientListener, c.HTTPListener = nil, nil, nil
		c.ListenPeerURLs = []string{url(), url()}
		c.ListenClientURLs = []string{url(), url()}
		c.ListenClientHTTPURLs = []string{url(), url()}
		c.ListenMetricsURLs = []string{url()}
	})
	if len(s.ClientAddrs()) != 2 || len(s.HTTPAddrs()) != 2 || len(s.MetricsAddrs()) != 1 {
		t.Fatalf("addresses %v, %v, %v, want 2, 2 and 1", s.ClientAddrs(), s.HTTPAddrs(), s.MetricsAddrs())
	}
	for i, addr := range s.ClientAddrs() {
		c := client(t, s)
		c.SetEndpoints(addr)
		if got, err := c.Put(t.Context(), "key", "value"); err != nil || got.Header.GetRevision() != int64(i+2) {
			t.Errorf("Put at %s = %v, %v, want revision %d", addr, got, err, i+2)
		}
	}
}
