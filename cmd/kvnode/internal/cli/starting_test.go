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
		code, stdout, _ := kvnode("status", "--timeout", "200ms", "--endpoints", scheme+"://"+l.Addr().String())
		if code == exitOK || !strings.Contains(stdout, "still starting") || strings.Contains(stdout, "give ") {
			t.Errorf("kvnode status of a member that starts, by %s = %d %s, want that it may be still starting", scheme, code, stdout)
		}
	}
}
