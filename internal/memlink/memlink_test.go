package memlink

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns both ends of a connection from a to b.
func dial(t *testing.T, n *Network) (local, remote net.Conn) {
	t.Helper()
	ln, err := n.Listen("b:0")
	if err != nil {
		t.Fatal(err)
	}
	local, err = n.Dial(t.Context(), "a", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	remote, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ln.Close()
		_ = local.Close()
		_ = remote.Close()
	})
	return local, remote
}

func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T has no CloseWrite", c)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("Write(%q): %v", s, err)
	}
}

// expect reads s and returns how long it took.
func expect(t *testing.T, c net.Conn, s string) time.Duration {
	t.Helper()
	began := time.Now()
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != s {
		t.Fatalf("Read() = %q, %v, want %q", b, err, s)
	}
	return time.Since(began)
}

func TestBytesArriveInOrderAndThenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := dial(t, New())
		write(t, a, "one")
		write(t, a, "two")
		_ = a.Close()
		expect(t, b, "onetwo")
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read() after the end = %v, want EOF", err)
		}
		if _, err := b.Write([]byte("x")); err == nil {
			t.Error("Write() to a closed connection succeeded")
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read() of a closed connection = %v, want %v", err, net.ErrClosed)
		}
		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close() = %v, want %v", err, net.ErrClosed)
		}
	})
}

func TestCloseWriteLeavesTheOtherWayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := dial(t, New())
		closeWrite(t, a)
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read() = %v, want EOF", err)
		}
		write(t, b, "still here")
		expect(t, a, "still here")
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := dial(t, New())
		began := time.Now()
		_ = a.SetDeadline(began.Add(time.Second))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("Read() = %v after %v, want a timeout after 1s", err, time.Since(began))
		}
		if _, err := a.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write() after the deadline = %v, want a timeout", err)
		}
		_ = a.SetDeadline(time.Now().Add(time.Second))
		n, err := a.Write(make([]byte, bufferSize+1))
		if ne, ok := errors.AsType[net.Error](err); n != bufferSize || !ok || !ne.Timeout() {
			t.Errorf("Write() into a full pipe = %d, %v, want %d and a timeout", n, err, bufferSize)
		}
		// A new deadline wakes a reader that waits under the old one.
		go func() {
			time.Sleep(time.Second)
			_ = b.SetReadDeadline(time.Now())
		}()
		_, _ = io.CopyN(io.Discard, b, bufferSize)
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read() = %v, want a timeout", err)
		}
		_ = b.SetReadDeadline(time.Time{})
		_ = a.SetWriteDeadline(time.Time{})
		write(t, a, "on")
		expect(t, b, "on")
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := dial(t, n)
		n.Delay("a", "b", 30*time.Millisecond)
		write(t, a, "slow")
		if d := expect(t, b, "slow"); d != 30*time.Millisecond {
			t.Errorf("arrived after %v, want 30ms", d)
		}
		write(t, a, "first")
		n.Delay("a", "b", 0)
		write(t, a, "second")
		expect(t, b, "firstsecond")
		n.Delay("a", "b", 30*time.Millisecond)
		began := time.Now()
		if _, err := n.Dial(t.Context(), "a", "b:1"); err != nil || time.Since(began) != 60*time.Millisecond {
			t.Errorf("Dial() = %v after %v, want a round trip of 60ms", err, time.Since(began))
		}
	})
}

// Bytes sent during a cut arrive when it is healed, and so does the end of the stream.
func TestCutHoldsAndHealDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := dial(t, n)
		n.CutOneWay("a", "b")
		write(t, a, "held")
		closeWrite(t, a)
		write(t, b, "passes")
		expect(t, a, "passes")
		_ = b.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read() across a cut = %v, want a timeout", err)
		}
		_ = b.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(time.Second)
			n.Heal("a", "b")
		}()
		if d := expect(t, b, "held"); d != time.Second {
			t.Errorf("arrived after %v, want 1s", d)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("Read() = %v, want EOF", err)
		}
	})
}

func TestDialAcrossACutHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		dial(t, n)
		n.Isolate("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial() across a cut = %v, want a timeout", err)
		}
		n.HealAll()
		c, err := n.Dialer("a")(t.Context(), "b:1")
		if err != nil {
			t.Fatalf("Dial() after healing: %v", err)
		}
		_ = c.Close()
	})
}

func TestResetEndsBothSidesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := dial(t, n)
		write(t, a, "lost")
		n.Cut("a", "b")
		if got := n.Connections("a", "b"); got != 1 {
			t.Errorf("Connections() = %d, want 1", got)
		}
		n.Reset("a", "b")
		for _, c := range []net.Conn{a, b} {
			if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
				t.Errorf("SetDeadline() = %v: a socket that was reset takes one", err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, errReset) {
				t.Errorf("Read() = %v, want %v", err, errReset)
			}
		}
		if got := n.Connections("a", "b"); got != 0 {
			t.Errorf("Connections() = %d, want 0", got)
		}
	})
}

func TestDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b := dial(t, n)
		n.Damage("a", "b", func(p []byte) { p[0] = 'X' })
		text := "whole"
		write(t, a, text)
		expect(t, b, "Xhole")
		n.Damage("a", "b", nil)
		write(t, a, text)
		expect(t, b, text)
	})
}

func TestListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		ln, err := n.Listen("b:7")
		if err != nil || ln.Addr().String() != "b:7" || ln.Addr().Network() != network {
			t.Fatalf("Listen() = %v, %v", ln, err)
		}
		if _, err := n.Listen("b:7"); !errors.Is(err, errInUse) {
			t.Errorf("second Listen() = %v, want %v", err, errInUse)
		}
		waiting, err := n.Dial(t.Context(), "a", "b:7")
		if err != nil {
			t.Fatal(err)
		}
		_ = ln.Close()
		if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, errReset) {
			t.Errorf("Read() of a connection that was not accepted = %v, want %v", err, errReset)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept() = %v, want %v", err, net.ErrClosed)
		}
		if _, err := n.Dial(t.Context(), "a", "b:7"); !errors.Is(err, errRefused) {
			t.Errorf("Dial() without a listener = %v, want %v", err, errRefused)
		}
		if _, err := n.Listen("nonsense"); err == nil || !strings.Contains(err.Error(), "missing port") {
			t.Errorf("Listen(nonsense) = %v, want missing port", err)
		}
		again, err := n.Listen("b:7")
		if err != nil {
			t.Errorf("Listen() again: %v", err)
		}
		_ = again.Close()
	})
}
