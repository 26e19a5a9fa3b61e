package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
)

// A peer that ends all its connections, or whose process does, is gone, once. One
// that this end has closed, or has waited for in vain, is not.
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
				if got := a.left(); !slices.Equal(got, tt.want) {
					t.Errorf("Gone() was called for %v, want %v", got, tt.want)
				}
				net.HealAll()
			})
		})
	}
}

// A peer that has ended one of its streams is not gone, nor is one that has connected anew.
func TestWhoIsStillThereIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := begin(t, net, &fakeNode{id: 1})
		older, first, second := dialled(t, net, 2, control), dialled(t, net, 2, control), dialled(t, net, 2, bulk)
		synctest.Wait()
		_, _ = older.Close(), first.Close()
		synctest.Wait()
		if got := a.left(); got != nil {
			t.Errorf("Gone() was called for %v while a stream is left", got)
		}
		_ = second.Close()
		synctest.Wait()
		if got := a.left(); !slices.Equal(got, []uint64{2}) {
			t.Errorf("Gone() was called for %v, want [2]", got)
		}
		a.Transport.mu.Lock()
		defer a.Transport.mu.Unlock()
		if in, turns := len(a.Transport.mu.inbound), len(a.Transport.mu.turns); in > 0 || turns > 0 {
			t.Errorf("%d connections and %d turns are left of a peer that is gone, want none", in, turns)
		}
	})
}

// dialled is a stream from a peer to member 1.
func dialled(t *testing.T, network *memlink.Network, from uint64, kind stream) net.Conn {
	t.Helper()
	c, err := network.Dial(t.Context(), hostOf(from), addrOf(1))
	if err != nil {
		t.Fatal(err)
	}
	h := helloOf(from)
	h.To = 1
	if err := writePacket(c, byte(kind)+1, h); err != nil {
		t.Fatal(err)
	}
	if _, err := readPacket(c, maxHello); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatThePeerHasEnded(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF:              true,
		io.ErrUnexpectedEOF: true,
		&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}: true,
		fmt.Errorf("read frame: %w", io.EOF):                                          true,
		net.ErrClosed:                                                                 false,
		os.ErrDeadlineExceeded:                                                        false,
		errors.New("no frame"):                                                        false,
	} {
		if got := endedByPeer(err); got != want {
			t.Errorf("endedByPeer(%v) = %v, want %v", err, got, want)
		}
	}
}
