package connlimit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wire is the client's end: what the server reads, and how it takes what is written.
type wire struct {
	net.Conn

	in     bytes.Buffer
	taken  chan struct{} // a Write ends when it receives; nil: after delay
	delay  time.Duration
	closed chan struct{}
	once   sync.Once
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	if errors.Is(err, io.EOF) {
		err = nil // the client sends nothing more yet
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if w.taken == nil {
		time.Sleep(w.delay)
		return len(p), nil
	}
	select {
	case <-w.taken:
		return len(p), nil
	case <-w.closed:
		return 0, net.ErrClosed
	}
}

func (w *wire) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 1} }
func (w *wire) Close() error         { w.once.Do(func() { close(w.closed) }); return nil }

func newH2(maxStreams int) *H2 { return NewH2(maxStreams, slog.New(slog.DiscardHandler)) }

// connect returns a connection after the client's preface.
func connect(t *testing.T, h *H2) (*H2Conn, *wire) {
	t.Helper()
	w := &wire{closed: make(chan struct{})}
	c := h.Conn(w)
	t.Cleanup(func() {
		if !c.addr.Ended() {
			_ = c.Close()
		}
	})
	receive(t, c, w, make([]byte, prefaceLen))
	return c, w
}

// receive has c read all that the client sends.
func receive(t *testing.T, c *H2Conn, w *wire, sent []byte) {
	t.Helper()
	w.in.Write(sent)
	p := make([]byte, 32<<10)
	for w.in.Len() > 0 {
		if _, err := c.Read(p); err != nil {
			t.Fatalf("Read() = %v", err)
		}
	}
}

// requests returns n requests, from a stream on, and end what follows each.
func requests(from uint32, n int, end func(stream uint32) []byte) (b []byte) {
	for i := range uint32(n) {
		b = append(b, raw(frameHeaders, 0x4, from+2*i, 60)...)
		b = append(b, end(from+2*i)...)
	}
	return b
}

func message(stream uint32) []byte { return raw(frameData, flagEndStream, stream, 100) }
func reset(stream uint32) []byte   { return append(message(stream), raw(frameReset, 0, stream, 4)...) }

// answer writes the reply to a request.
func answer(t *testing.T, c *H2Conn, stream uint32) {
	t.Helper()
	b := append(raw(frameHeaders, 0x4, stream, 10), raw(frameData, 0, stream, 100)...)
	if _, err := c.Write(append(b, raw(frameHeaders, 0x5, stream, 10)...)); err != nil {
		t.Fatalf("Write() = %v", err)
	}
}

// blocked reports whether c waits before it reads, and lets it read on with go on.
func blocked(c *H2Conn) (isBlocked bool, goOn func()) {
	done := make(chan struct{})
	go func() { _, _ = c.Read(make([]byte, 9)); close(done) }()
	synctest.Wait()
	select {
	case <-done:
		return false, func() {}
	default:
		return true, func() { <-done }
	}
}

// A client that takes no answers is not read, whether or not it resets its requests.
func TestAClientThatTakesNoAnswersIsNotRead(t *testing.T) {
	for name, end := range map[string]func(uint32) []byte{"waits": message, "resets": reset} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, w := connect(t, newH2(1<<16))
				w.taken = make(chan struct{})
				go func() {
					for range 50 {
						_, _ = c.Write(raw(frameData, 0, 1, writeBuffer-headerLen)) // there is more
					}
				}()
				synctest.Wait()
				for at, n := uint32(1), 0; n <= maxBacklog; n++ {
					if is, _ := blocked(c); is {
						t.Fatalf("the client is not read after %d requests, want %d", n, maxBacklog)
					}
					receive(t, c, w, requests(at, 1, end))
					at += 2
				}
				is, goOn := blocked(c)
				if !is {
					t.Fatalf("the client is read with more than %d answers that are not written", maxBacklog)
				}
				// It takes one buffer a second.
				for range 49 {
					time.Sleep(time.Second)
					w.taken <- struct{}{}
				}
				synctest.Wait()
				if c.mu.backlog <= maxBacklog {
					t.Error("the client is read although more is to be written")
				}
				began := time.Now()
				close(w.taken)
				goOn()
				if took := time.Since(began); took > idleTime+maxWait {
					t.Errorf("the client is read %v after its answers were written, want %v", took, idleTime)
				}
			})
		})
	}
}

// A client that takes its answers is read at once, and so is one that has many
// requests for which the server has no answer yet.
func TestAClientThatTakesAnswersIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := connect(t, newH2(1<<16))
		began := time.Now()
		for i := range uint32(10 * maxBacklog) {
			receive(t, c, w, requests(2*i+1, 1, message))
			answer(t, c, 2*i+1)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("requests that are answered took %v, want no wait", took)
		}
		time.Sleep(idleTime)
		began = time.Now()
		receive(t, c, w, requests(100_001, 10*maxBacklog, message))
		if took := time.Since(began); took > 0 {
			t.Errorf("requests that last took %v, want no wait while nothing is written", took)
		}
		if is, goOn := blocked(c); is {
			goOn()
			t.Error("a client is not read although the writer is idle")
		}
	})
}

// Requests that the client has reset, and those that last, hold up no client: gRPC
// keeps no answer for them once its writer has caught up. Here the writer never rests,
// and each write is slow, as on a busy machine.
func TestRequestsWithoutAnswersHoldUpNoClient(t *testing.T) {
	for name, end := range map[string]func(uint32) []byte{"reset": reset, "last": message} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, w := connect(t, newH2(1<<16))
				w.delay = time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				context.AfterFunc(ctx, c.addr.End)
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = c.Write(raw(frameData, 0, 1, 100)) // an event
						time.Sleep(5 * time.Millisecond)
					}
				})
				began := time.Now()
				for i := range uint32(2 * maxBacklog) {
					receive(t, c, w, requests(2*i+1, 1, end))
					if _, err := c.h2.Begin(c.RemoteAddr(), Long); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("%d requests took %v, want 1 s", 2*maxBacklog, took)
				}
			})
		})
	}
}

// A client with many requests under way is read again when one of them has ended, or
// after maxWait.
func TestAClientWithManyRequestsIsReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newH2(1 << 16)
		c, w := connect(t, h)
		var end func()
		for i := range maxBusy + 1 {
			receive(t, c, w, requests(uint32(2*i+1), 1, message))
			var err error
			if end, err = h.Begin(c.RemoteAddr(), Short); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if is, goOn := blocked(c); is {
			goOn()
		}
		if took := time.Since(began); took < maxWait || took > 2*maxWait {
			t.Errorf("the client is read after %v, want %v", took, maxWait)
		}
		is, goOn := blocked(c)
		if !is {
			t.Error("the client is read at once")
		}
		began = time.Now()
		end()
		goOn()
		if took := time.Since(began); took > 0 {
			t.Errorf("the client is read %v after a request has ended, want at once", took)
		}
	})
}

// Streams that the client keeps open, such as keep-alives, do not slow it down.
func TestAClientWithManyLongStreamsIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newH2(1 << 16)
		c, w := connect(t, h)
		began := time.Now()
		for i := range maxBusy + 10 {
			receive(t, c, w, requests(uint32(2*i+1), 1, message))
			kind := Long
			if i%2 == 0 {
				kind = Waiting
			}
			if _, err := h.Begin(c.RemoteAddr(), kind); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("%d streams took %v, want no wait", maxBusy+10, took)
		}
	})
}

// Close ends the wait of Read.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := connect(t, newH2(1<<16))
		w.taken = make(chan struct{})
		go func() { _, _ = c.Write([]byte{0}) }()
		synctest.Wait()
		receive(t, c, w, requests(1, maxBacklog+1, message))
		is, goOn := blocked(c)
		if !is {
			t.Fatal("the client is read, want it to wait")
		}
		c.addr.End()
		goOn()
		if !c.addr.Ended() {
			t.Error("Ended() = false after End")
		}
	})
}

// A client that sends short frames is read in small pieces, others in large ones.
func TestShortFramesAreReadInSmallPieces(t *testing.T) {
	c, w := connect(t, newH2(1<<16))
	p := make([]byte, 32<<10)
	w.in.Write(bytes.Repeat(raw(0x6, 0, 0, 8), 4000))
	for w.in.Len() > 0 {
		if n, err := c.Read(p); err != nil || n > denseRead {
			t.Fatalf("Read() = %d, %v of PING frames, want at most %d", n, err, denseRead)
		}
	}
	for range 3 {
		w.in.Write(raw(frameData, 0, 1, 16<<10))
	}
	_, _ = c.Read(p) // it finds a long frame
	if n, err := c.Read(p); err != nil || n <= denseRead {
		t.Errorf("Read() = %d, %v of long frames, want more than %d", n, err, denseRead)
	}
}

// A client that sends a message in very short frames is cut off, unless the server
// answers on the stream meanwhile.
func TestMessagesInShortFrames(t *testing.T) {
	for _, test := range []struct {
		name string
		each []byte
		cut  bool
		do   func(t *testing.T, c *H2Conn)
	}{
		{"a message that never ends", raw(frameData, 0, 1, 1), true, nil},
		{"empty frames", raw(frameData, 0, 1, 0), true, nil},
		{"padding", raw(frameData, flagPadded, 1, 255), true, nil},
		{"long frames", raw(frameData, 0, 1, shortData), false, nil},
		{"keep-alives", raw(frameData, 0, 1, 20), false, func(t *testing.T, c *H2Conn) {
			t.Helper()
			if _, err := c.Write(raw(frameData, 0, 1, 30)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, w := connect(t, newH2(1<<16))
			receive(t, c, w, raw(frameHeaders, 0x4, 1, 60))
			p := make([]byte, 32<<10)
			for sent := 0; sent <= maxFragments; sent += 1000 {
				w.in.Write(bytes.Repeat(test.each, 1000))
				for w.in.Len() > 0 {
					_, err := c.Read(p)
					if err != nil && test.cut && errors.Is(err, ErrFragments) && sent+1000 > maxFragments {
						return
					}
					if err != nil {
						t.Fatalf("Read() = %v after %d frames", err, sent)
					}
				}
				if test.do != nil {
					test.do(t, c)
				}
			}
			if test.cut {
				t.Errorf("the connection is open after %d frames", maxFragments)
			}
		})
	}
}

// raw returns a frame with n bytes of payload.
func raw(kind, flags byte, stream uint32, n int) []byte {
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
	return append(b, make([]byte, n)...)
}

// The scanner finds the same frames however a connection is cut into pieces.
func TestFramesInAnyPieces(t *testing.T) {
	var all []byte
	want := []frame{
		{kind: 0x4, length: 36},
		{kind: frameHeaders, flags: 5, length: 70, stream: 1},
		{kind: frameReset, length: 4, stream: 1},
		{kind: frameData, length: 0, stream: 3},
		{kind: frameData, length: 70_000, stream: 1<<31 - 1},
		{kind: 0x6, flags: 1, length: 8},
	}
	for _, f := range want {
		all = append(all, raw(f.kind, f.flags, f.stream, f.length)...)
	}
	all[len(all)-17+5] |= 0x80 // a reserved bit
	for size := 1; size < 30; size++ {
		s := scanner{}
		var got []frame
		for piece := range slices.Chunk(all, size) {
			for f, rest, ok := s.next(piece); ok; f, rest, ok = s.next(rest) {
				got = append(got, f)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %+v, want %+v", size, got, want)
		}
	}
}

// FuzzFramesInAnyPieces finds the same frames in any bytes, in pieces of any size.
func FuzzFramesInAnyPieces(f *testing.F) {
	f.Add(append(raw(frameReset, 0, 1, 4), raw(0x6, 0, 0, 8)...), byte(99))
	f.Add(append(raw(0x4, 0, 0, 0), raw(frameData, flagEndStream, 3, 5)...), byte(13))
	f.Fuzz(func(t *testing.T, all []byte, size byte) {
		find := func(size int) (got []frame) {
			s := scanner{}
			for piece := range slices.Chunk(all, size) {
				for f, rest, ok := s.next(piece); ok; f, rest, ok = s.next(rest) {
					got = append(got, f)
				}
				if s.skip < 0 {
					t.Fatalf("in pieces of %d: %d bytes to skip", size, s.skip)
				}
			}
			return got
		}
		if len(all) == 0 {
			return
		}
		want, got := find(1), find(int(size)+1)
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %+v, byte by byte %+v", int(size)+1, got, want)
		}
	})
}
