package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
)

// Gone is called once for a peer that closes all its connections. It is not called
// if this end closes them, or after a timeout.
func TestGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(net *memlink.Network, a, b *fakeNode)
		want []uint64
	}{
		{"it ends", func(_ *memlink.Network, _, b *fakeNode) { _ = b.Close() }, []uint64{2}},
		{"it says nothing", func(net *memlink.Network, _, _ *fakeNode) { net.Cut("n1", "n2"); time.Sleep(time.Minute) }, nil},
		{"it is removed here", func(_ *memlink.Network, a, _ *fakeNode) { a.RemovePeer(2) }, nil},
		{"this end ends", func(_ *memlink.Network, a, _ *fakeNode) { _ = a.Close() }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net, a, b := pair(t)
				settled()
				tt.do(net, a, b)
				synctest.Wait()
				if got := a.goneCalls(); !slices.Equal(got, tt.want) {
					t.Errorf("Gone() was called for %v, want %v", got, tt.want)
				}
				net.HealAll()
			})
		})
	}
}

// Gone is not called while the peer has another stream or a newer connection.
func TestPeerWithAnotherStreamIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := startNode(t, net, &fakeNode{id: 1})
		older, first, second := dialled(t, net, 2, control), dialled(t, net, 2, control), dialled(t, net, 2, bulk)
		synctest.Wait()
		_, _ = older.Close(), first.Close()
		synctest.Wait()
		if got := a.goneCalls(); got != nil {
			t.Errorf("Gone() was called for %v while a stream is left", got)
		}
		_ = second.Close()
		synctest.Wait()
		if got := a.goneCalls(); !slices.Equal(got, []uint64{2}) {
			t.Errorf("Gone() was called for %v, want [2]", got)
		}
		a.Transport.mu.Lock()
		defer a.Transport.mu.Unlock()
		if in, reading, processes := len(a.Transport.mu.inbound), len(a.Transport.mu.reading), len(a.Transport.mu.processes); in+reading+processes > 0 {
			t.Errorf("%d connections, %d semaphores and %d records of processes are left of a peer that is gone, want none", in, reading, processes)
		}
	})
}

// dialled is a stream from a peer to member 1.
func dialled(t *testing.T, network *memlink.Network, from uint64, kind stream) net.Conn {
	t.Helper()
	c, h := dialRaw(t, network, from, 1), helloTo(from, 1)
	h.Log.Boot = "p"
	speak(t, c, kind, h)
	return c
}

func TestClosedByPeer(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF:              true,
		io.ErrUnexpectedEOF: true,
		&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}: true,
		fmt.Errorf("read frame: %w", io.EOF):                                          true,
		net.ErrClosed:                                                                 false,
		os.ErrDeadlineExceeded:                                                        false,
		errors.New("no frame"):                                                        false,
	} {
		if got := closedByPeer(err); got != want {
			t.Errorf("closedByPeer(%v) = %v, want %v", err, got, want)
		}
	}
}

// An error is logged about two processes that connect alternately as one member, but
// not about a process that replaces another or connects again.
func TestDuplicateProcessIsLogged(t *testing.T) {
	for _, tc := range []struct {
		name      string
		processes []string
		lines     int
	}{
		{"one that connects again and again", []string{"a", "a", "a", "a", "a", "a", "a", "a"}, 0},
		{"one after another", []string{"a", "b", "c", "d", "e", "f", "g"}, 0},
		{"a late connection of a dead process", []string{"a", "b", "a", "b", "b", "b"}, 0},
		{"two alternately", []string{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b"}, 1},
		{"former versions without the field", []string{"", "", "", ""}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				var log bytes.Buffer
				startNode(t, net, &fakeNode{id: 2}, func(cfg *Config, _ *limits) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				for _, process := range tc.processes {
					c := dialRaw(t, net, 1, 2)
					t.Cleanup(func() { _ = c.Close() })
					h := helloTo(1, 2)
					h.Log.Boot, h.Name, h.PeerURLs = process, "n1", fmt.Sprintf("http://%s:2380", process)
					if p := speak(t, c, control, h); p.kind != answerOK {
						t.Fatalf("process %s was answered with kind %d, want %d", process, p.kind, answerOK)
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if got := strings.Count(log.String(), "connects from two addresses"); got != tc.lines {
					t.Errorf("%d lines, want %d: %s", got, tc.lines, log.String())
				}
			})
		})
	}
}

// Log lines about repeated connections are limited.
func TestALinkThatFlapsDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		var log bytes.Buffer
		startNode(t, net, &fakeNode{id: 2}, func(cfg *Config, _ *limits) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		for range 500 {
			c := dialRaw(t, net, 1, 2)
			if p := speak(t, c, control, helloTo(1, 2)); p.kind != answerOK {
				t.Fatalf("answered with kind %d, want %d", p.kind, answerOK)
			}
			_ = c.Close()
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if got := strings.Count(log.String(), "\n"); got > 30 {
			t.Errorf("500 connections in 10s made %d lines, want at most 30", got)
		}
	})
}

// few makes a member with few pending connections.
func few(_ *Config, lim *limits) { lim.pending = 4 }

// Silent connections, from other hosts or from the peer's own, do not lock a peer out.
func TestSilentConnectionsDoNotLockOutAPeer(t *testing.T) {
	for _, from := range []uint64{1, 9} {
		synctest.Test(t, func(t *testing.T) {
			network := memlink.New()
			b := startNode(t, network, &fakeNode{id: 2}, few)
			stop := make(chan struct{})
			flooded := make(chan struct{})
			var calls []net.Conn
			go func() {
				defer close(flooded)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						calls = append(calls, dialRaw(t, network, from, 2))
					}
				}
			}()
			time.Sleep(100 * time.Millisecond)
			a := startNode(t, network, &fakeNode{id: 1})
			connectAll(a, b)
			settled()
			if !a.peerOf(t, 2).Connected || !b.peerOf(t, 1).Connected {
				t.Errorf("a flood from n%d: %q, %q, want both connected", from, a.peerOf(t, 2).LastError, b.peerOf(t, 1).LastError)
			}
			close(stop)
			<-flooded
			s := b.connLimit.Stats()
			for _, c := range calls {
				_ = c.Close()
			}
			if s.Evicted < 90 || s.Pending > 4 {
				t.Errorf("%+v after a flood, want most connections evicted", s)
			}
		})
	}
}

// A member with a wrong certificate is connected soon after the certificate was
// replaced.
func TestACertificatePutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		a := startNode(t, network, &fakeNode{id: 1}, s.apply)
		b := startNode(t, network, &fakeNode{id: 2}, s.apply)
		other := tlstest.New(t, "other")
		tlstest.Write(t, s.dirs[1], "ca", slices.Concat(other.PEM, s.ca.PEM))
		other.Issue([]string{hostOf(1)}).Write(s.dirs[1], "own")
		time.Sleep(2 * time.Second)
		// Of two handshakes that come first, one would still use the old files.
		s.sources[1].Stats()
		connectAll(a, b)
		time.Sleep(time.Minute)
		if a.peerOf(t, 2).Connected || b.totals.garbled.Load() < 60 {
			t.Fatalf("connected: %v after %d handshakes that failed, want not, and many", a.peerOf(t, 2).Connected, b.totals.garbled.Load())
		}
		s.ca.Issue([]string{hostOf(1)}).Write(s.dirs[1], "own")
		time.Sleep(3 * time.Second)
		if p := a.peerOf(t, 2); !p.Connected || !p.Streams[bulk].Connected {
			t.Errorf("3s after the certificate was replaced: %q, want connected", p.LastError)
		}
	})
}
