package listener

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
)

// pagesTime is a time limit such as pages set.
const pagesTime = 5 * time.Second

// plain is an entrance for plain text.
func plain() *Entrance {
	return New(Config{MaxOpenStreams: 16, Logger: slog.New(slog.DiscardHandler)})
}

// gRPC's server takes its deadline away once it has let go of a connection. That
// of the pages stays.
func TestThePagesDeadlineStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := plain()
		defer e.End()
		near, far := net.Pipe()
		defer near.Close()
		a := &arrival{Conn: far, shared: true, introduced: func() bool { return true }}
		go func() { _, _ = io.WriteString(near, "GET") }()
		go func() {
			if _, _, err := e.ServerHandshake(a); !errors.Is(err, credentials.ErrConnDispatched) {
				t.Errorf("ServerHandshake() = %v, want that the connection was given away", err)
			}
			time.Sleep(time.Second) // the pages are faster
			_ = a.SetDeadline(time.Time{})
		}()
		c, err := e.pages.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(pagesTime))
		// Without a deadline this is what ends the wait.
		defer time.AfterFunc(2*pagesTime, func() { _ = near.Close() }).Stop()
		if got, err := io.ReadAll(c); string(got) != "GET" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the pages read %q, %v, want GET and the end of their time", got, err)
		}
	})
}

// Whatever did not come by a listener for clients may be anybody.
func TestTheEntranceRefusesWhatItDoesNotKnow(t *testing.T) {
	e := plain()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if _, _, err := e.ServerHandshake(far); err == nil {
		t.Error("ServerHandshake() of an unknown connection succeeds, want an error")
	}
}

// Nobody is left to take what is handed over after the pages have closed.
func TestHandoverAfterClose(t *testing.T) {
	h := NewHandover()
	for range 2 {
		if err := h.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
	if err := h.Give(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Give() after Close = %v, want net.ErrClosed", err)
	}
	if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() after Close = %v, want net.ErrClosed", err)
	}
}
