package server

import "testing"

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
