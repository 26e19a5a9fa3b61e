package cli

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	node "github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

// A member that ends by itself ends the process with the reason.
func TestAMemberThatFails(t *testing.T) {
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	srv, err := server.Start(server.Config{DataDir: t.TempDir(), PeerListener: listen(), ClientListener: listen()})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Node().Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log buffer
	err = untilStopped(srv, make(chan struct{}), slog.New(slog.NewTextHandler(&log, nil)))
	if !errors.Is(err, node.ErrStopped) || !strings.Contains(log.String(), "the member has failed") {
		t.Errorf("untilStopped() = %v, logs %s, want kvnode.ErrStopped and a line that says so", err, log.String())
	}
}
