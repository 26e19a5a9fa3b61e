package cli

import (
	"errors"
	"fmt"
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
	srv, err := server.Start(server.Config{Node: node.Config{DataDir: t.TempDir(), Listener: listen()}, ClientListener: listen()})
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

// The exit code tells a supervisor not to restart a member that was removed.
func TestAMemberThatWasRemovedHasNotFailed(t *testing.T) {
	removed := fmt.Errorf("kvnode: %w", node.ErrRemoved)
	if err := ended(removed, removed); err != nil {
		t.Errorf("ended(removed) = %v, want nil", err)
	}
	for _, failure := range []error{node.ErrLost, node.ErrStopped} {
		if err := ended(failure, nil); !errors.Is(err, failure) {
			t.Errorf("ended(%v) = %v, want the failure", failure, err)
		}
	}
	if err := ended(nil, node.ErrTimeout); !errors.Is(err, node.ErrTimeout) {
		t.Errorf("ended(asked to, not in order) = %v, want why not", err)
	}
}
