package floodgate

import (
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/leaderlease/go/internal/flood"
)

const method = "/etcdserverpb.KV/Range"

// wire is the other end of a connection: what is to be read, piece by piece.
type wire struct {
	net.Conn
	pieces [][]byte
	closed atomic.Bool
}

func (w *wire) Read(p []byte) (int, error) {
	if w.closed.Load() {
		return 0, net.ErrClosed
	}
	n := copy(p, w.pieces[0])
	if w.pieces[0] = w.pieces[0][n:]; len(w.pieces[0]) == 0 {
		w.pieces = w.pieces[1:]
	}
	return n, nil
}

func (w *wire) Write(p []byte) (int, error) { return len(p), nil }

func (w *wire) Close() error { w.closed.Store(true); return nil }

func (w *wire) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4} }

// session is a connection under test.
type session struct {
	t *testing.T
	*wire
	c     net.Conn
	meter *Meter
	// alone says that nobody else is answered.
	alone bool
}

func connect(t *testing.T, g *Meter) *session {
	w := &wire{}
	s := &session{t: t, wire: w, c: g.Conn(w, stranger), meter: g}
	if err := s.receive(flood.Hello()); err != nil {
		t.Fatalf("the first bytes of a connection: %v", err)
	}
	return s
}

// receive has all of p read.
func (s *session) receive(p []byte) error {
	s.pieces = append(s.pieces, p)
	buf := make([]byte, 32<<10)
	for len(s.pieces) > 0 {
		if !s.alone {
			s.meter.answers.Store(true)
		}
		if _, err := s.c.Read(buf); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) send(frames ...[]byte) {
	s.t.Helper()
	for _, f := range frames {
		if _, err := s.c.Write(f); err != nil {
			s.t.Fatal(err)
		}
	}
}

// raw makes a frame of n bytes.
func raw(kind, flags byte, stream uint32, n int, payload ...byte) []byte {
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
	return append(append(b, payload...), make([]byte, n-len(payload))...)
}

// request and answer are a unary call, reset the end that a client makes of it.
func request(id uint32) []byte {
	return append(flood.Open(nil, id, method), raw(frameData, flagEndStream, id, 8)...)
}

func answer(id uint32) []byte {
	b := append(raw(frameHeaders, 4, id, 14), raw(frameData, 0, id, 40)...)
	return append(b, raw(frameHeaders, 4|flagEndStream, id, 24)...)
}

func reset(id uint32) []byte { return raw(frameReset, 0, id, 4, 0, 0, 0, codeCancel) }

func stranger() bool { return false }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// once is a wire that says the same for ever.
type once struct {
	wire
	said []byte
}

func (o *once) Read(p []byte) (int, error) { return copy(p, o.said), nil }

// Each request of a client pays for being counted.
func BenchmarkRequest(b *testing.B) {
	o := &once{said: flood.Hello()}
	c := New(quiet(), 1<<20).Conn(o, stranger)
	buf, reply := make([]byte, 32<<10), answer(1)
	if _, err := c.Read(buf); err != nil {
		b.Fatal(err)
	}
	o.said = request(1)
	for b.Loop() {
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write(reply); err != nil {
			b.Fatal(err)
		}
	}
}
