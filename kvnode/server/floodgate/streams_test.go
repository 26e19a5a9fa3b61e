package floodgate

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/flood"
)

// ask opens a stream as gRPC takes note of it, and reports whether it is permitted.
func (s *session) ask(id uint32, lasts bool) bool {
	s.t.Helper()
	if err := s.receive(request(id)); err != nil {
		s.t.Fatal(err)
	}
	return Permit(s.c, lasts) == nil
}

// fill opens streams from one ID on until one is refused, and returns how many.
func (s *session) fill(from uint32, lasts bool) (n int64) {
	s.t.Helper()
	for ; n < 10_000 && s.ask(from, lasts); from += 2 {
		n++
	}
	return n
}

// However many streams a connection opens, there is room for those of others, and on
// its own for requests that end what lasts.
func TestConnectionsShareTheStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := New(slog.New(slog.NewTextHandler(&log, nil)), 1200)
		first, second, third := connect(t, g), connect(t, g), connect(t, g)
		if n := first.fill(1, true); n != 400 {
			t.Errorf("a connection has %d streams that last, want a third of 1200", n)
		}
		if n := first.fill(2001, false); n != 200 {
			t.Errorf("and %d others, want 200, so that as many are free as it has", n)
		}
		if n := second.fill(1, false); n != 300 {
			t.Errorf("the next has %d streams, want half of what is left", n)
		}
		if n := third.fill(1, false); n != 150 {
			t.Errorf("the third has %d streams, want half of what is left", n)
		}
		if got := g.Counts(); got.Open != 1050 || got.Refused != 4 {
			t.Errorf("Counts() = %+v, want 1050 streams and 4 refused", got)
		}
		if n := strings.Count(log.String(), "MaxOpenStreams"); n != 3 {
			t.Errorf("the log is %q, want three lines that name the flag", log.String())
		}
		if err := third.receive(request(9001)); err != nil {
			t.Fatal(err)
		}
		err := Permit(third.c, false)
		if e, ok := errors.AsType[*TooManyError](err); !ok || e.Most != 1200 || !strings.Contains(err.Error(), "1200") {
			t.Errorf("Permit() = %v, want a *TooManyError that names the limit", err)
		}
	})
}

// Streams that are refused wait for their turn, those of all connections together, and close no
// connection: a client that has been refused makes calls, and may try again.
func TestRefusedStreamsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1000)
		a, b := connect(t, g), connect(t, g)
		begun := time.Now()
		const each = 3 * perSecond
		for i := range uint32(each) {
			for _, s := range []*session{a, b} {
				if err := s.receive(flood.Open(nil, 2*i+1, method)); err != nil {
					t.Fatalf("a stream after %d that were refused: %v", i, err)
				}
				Refused(s.c, io.EOF)
			}
		}
		if took := time.Since(begun); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("%d streams are refused in %v, want %d a second", 2*each, took, perSecond)
		}
		if got := g.Counts(); got.Open != 0 || got.Refused != 2*each || got.Closed != 0 {
			t.Errorf("Counts() = %+v, want %d refused, none open", got, 2*each)
		}
	})
}

// A member's connection carries what many clients ask: it may take what is left.
func TestMembersTakeWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 100)
		s := &session{t: t, wire: &wire{}, meter: g}
		s.c = g.Conn(s.wire, func() bool { return true })
		if err := s.receive(flood.Hello()); err != nil {
			t.Fatal(err)
		}
		if n := s.fill(1, true); n != 100 {
			t.Errorf("a member has %d streams, want all 100", n)
		}
	})
}

// A stream counts until either end has ended it, and once.
func TestWhichStreamsAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1000)
		s := connect(t, g)
		want := func(n int64, what string) {
			t.Helper()
			if got := g.Counts().Open; got != n {
				t.Errorf("%d streams are open %s, want %d", got, what, n)
			}
		}
		for id := uint32(1); id <= 19; id += 2 {
			s.ask(id, false)
		}
		want(10, "after ten requests")
		s.send(raw(frameHeaders, 4, 1, 14), raw(frameData, 0, 1, 40))
		want(10, "while an answer is under way")
		s.send(raw(frameHeaders, 4|flagEndStream, 1, 24))
		want(9, "when it has ended")
		s.send(raw(frameReset, 0, 1, 4, 0, 0, 0, codeNone))
		want(9, "when gRPC says so again")
		s.send(raw(frameReset, 0, 3, 4, 0, 0, 0, codeCancel))
		want(8, "when the server has reset one")
		for range 3 {
			for _, id := range []uint32{1, 3, 5} {
				if err := s.receive(reset(id)); err != nil {
					t.Fatal(err)
				}
			}
		}
		want(7, "when the client has reset one, and others that had ended")
		connect(t, g).ask(1, false)
		for range 2 {
			if err := s.c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want(1, "when the connection is closed")
		s.send(answer(7))
		want(1, "when somebody writes to it all the same")
	})
}

// However requests come, whoever reads them is asked about each when it is the newest,
// and reads what was sent.
func TestStreamsComeOneByOne(t *testing.T) {
	var all []byte
	for id := uint32(1); id < 40; id += 2 {
		b := request(id)
		if id%3 == 0 { // in two parts
			b[4] &^= flagEndHeaders
			b = slices.Concat(b[:len(b)-headerLen-8], raw(frameContinuation, flagEndHeaders, id, 5), b[len(b)-headerLen-8:])
		}
		all = append(all, b...)
	}
	two := append(request(1), request(3)...)
	for size := 1; size < len(all); size += 1 + size/7 {
		cameOneByOne(t, all, size)
	}
	s := connect(t, New(quiet(), 1000))
	s.pieces = [][]byte{two}
	for _, want := range []int{len(two) / 2, len(two) / 2} {
		if n, err := s.c.Read(make([]byte, 32<<10)); n != want || err != nil {
			t.Errorf("Read() = %d, %v, want one request of %d bytes", n, err, want)
		}
	}
}

// cameOneByOne has what was sent come in pieces of a size, and no stream before the last one
// was read to its end.
func cameOneByOne(t *testing.T, all []byte, size int) {
	t.Helper()
	s := connect(t, New(quiet(), 1000))
	s.pieces = slices.Collect(slices.Chunk(all, size))
	var got []byte
	p := scanner{}
	last, unread, ended, whole := uint32(0), false, true, true
	for len(got) < len(all) {
		buf := make([]byte, 333)
		n, err := s.c.Read(buf)
		if n == 0 || err != nil {
			t.Fatalf("Read() = %d, %v", n, err)
		}
		got = append(got, buf[:n]...)
		for f, rest, ok := p.next(buf[:n]); ok; f, rest, ok = p.next(rest) {
			if f.kind == frameHeaders && unread {
				t.Fatalf("in pieces of %d stream %d comes with the end of %d", size, f.stream, last)
			}
			last, unread = f.stream, unread || f.kind == frameHeaders
			ended = f.kind == frameData
			whole = ended || f.flags&flagEndHeaders != 0
		}
		unread = !ended && (!whole || p.skip > 0)
	}
	if !bytes.Equal(got, all) {
		t.Fatalf("in pieces of %d something else comes than was sent", size)
	}
}

// blocked is a wire on which nothing is taken until it is told to.
type blocked struct {
	wire
	taken chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.taken
	return len(p), nil
}

// While a client takes nothing, nothing more is asked for it.
func TestWhoTakesNoAnswersAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocked{taken: make(chan struct{})}
		c := New(quiet(), 1000).Conn(b, stranger)
		go func() { _, _ = c.Write(answer(1)) }()
		time.Sleep(2 * maxStuck)
		b.pieces = [][]byte{request(3), request(5)}
		read := make(chan error, 2)
		go func() {
			for range 2 {
				_, err := c.Read(make([]byte, 32<<10))
				read <- err
			}
		}()
		time.Sleep(time.Hour)
		if len(read) != 0 {
			t.Error("a request is handed on though an answer has not been taken for an hour")
		}
		close(b.taken)
		synctest.Wait()
		if err := errors.Join(<-read, <-read); err != nil {
			t.Errorf("Read() = %v when it has been, want the requests", err)
		}
	})
}

// A connection that is closed meanwhile holds up nobody.
func TestCloseEndsTheWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocked{taken: make(chan struct{})}
		defer close(b.taken)
		c := New(quiet(), 1000).Conn(b, stranger)
		go func() { _, _ = c.Write(answer(1)) }()
		time.Sleep(2 * maxStuck)
		b.pieces = [][]byte{request(3)}
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(c, make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read() = %v, want net.ErrClosed", err)
		}
	})
}
