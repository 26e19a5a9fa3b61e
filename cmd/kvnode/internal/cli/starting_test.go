package cli

import (
	"net"
	"strings"
	"testing"
)

// A port that is open and does not answer is most likely that of a member that reads
// its store. What is at the port is not in question.
func TestStatusOfAMemberThatStarts(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, scheme := range []string{"http", "https"} {
		code, stdout, _ := kvnode("status", "--timeout", "10s", "--endpoints", scheme+"://"+l.Addr().String())
		if code == exitOK || !strings.Contains(stdout, "still starting") || strings.Contains(stdout, "give ") {
			t.Errorf("kvnode status of a member that starts, by %s = %d %s, want that it may be still starting", scheme, code, stdout)
		}
	}
}

// What gRPC says of a connection that broke off names the likely cause.
func TestPlainNamesTheLikelyCause(t *testing.T) {
	const prefix = `connection error: desc = "`
	for says, want := range map[string]string{
		`error reading server preface: raw-read tcp 127.0.0.1:1->127.0.0.1:2: use of closed network connection"`: "still starting",
		`transport: authentication handshake failed: context deadline exceeded"`:                                 "still starting",
		`transport: authentication handshake failed: remote error: tls: no application protocol"`:                "speaks TLS, but not gRPC",
		`transport: write tcp 127.0.0.1:1->127.0.0.1:2: write: broken pipe"`:                                     "--cert",
		`error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer"`:       "--cert",
		`error reading server preface: EOF"`:                                                                     "https://",
	} {
		if got := plain(prefix + says); !strings.Contains(got, want) {
			t.Errorf("plain(%s) = %q, want %q in it", says, got, want)
		}
	}
}
