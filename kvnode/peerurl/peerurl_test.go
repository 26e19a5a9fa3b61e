package peerurl

import "testing"

func TestIsLoopback(t *testing.T) {
	for peer, want := range map[string]bool{
		"http://127.0.0.1:2380": true, "https://127.1.2.3:1": true, "http://[::1]:2380": true, "http://localhost:2380": true,
		"http://10.0.0.1:2380": false, "http://m1:2380": false, "http://0.0.0.0:2380": false, "http://[::]:2380": false, "://": false,
	} {
		if got := IsLoopback(peer); got != want {
			t.Errorf("IsLoopback(%q) = %v, want %v", peer, got, want)
		}
	}
}
