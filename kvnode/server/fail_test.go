package server

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/leaderlease/go/kvnode"
)

// A server without its listener serves nobody, so it has failed.
func TestAListenerThatFails(t *testing.T) {
	l := ephemeral(t)
	s := solo(t, func(c *Config) { c.ClientListener = l })
	_ = l.Close()
	await(t, "Done is closed", s.Done())
	if err := s.Err(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Err() = %v, want net.ErrClosed", err)
	}
}

// So has one whose node has ended by itself; Stop still cleans up.
func TestANodeThatEnds(t *testing.T) {
	s := solo(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Node().Stop(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "Done is closed", s.Done())
	if err := s.Err(); !errors.Is(err, kvnode.ErrStopped) {
		t.Errorf("Err() = %v, want kvnode.ErrStopped", err)
	}
	if code, body := page(t, s, "/metrics"); code != 200 {
		t.Errorf("GET /metrics of a failed member = %d %s, want it to answer until Stop", code, body)
	}
}
