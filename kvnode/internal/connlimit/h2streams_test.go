package connlimit

import (
	"net"
	"strings"
	"testing"
)

// newest are the streams that the connections of a test have begun.
type newest map[net.Conn]uint32

// begin has a client begin a stream, and refuses it if Begin does.
func (all newest) begin(t *testing.T, h *H2, c *H2Conn, w *wire, kind Kind) error {
	t.Helper()
	all[c] += 2
	receive(t, c, w, raw(frameHeaders, 0x4, all[c], 10))
	_, err := h.Begin(c.RemoteAddr(), kind)
	if err != nil {
		if !strings.Contains(err.Error(), "of 100 at most") {
			t.Errorf("Begin() = %v, want it to name the limit", err)
		}
		answer(t, c, all[c])
	}
	return err
}

// All connections share the streams, and one leaves as many free as it has. Streams
// that wait leave room for requests that end them.
func TestConnectionsShareTheStreams(t *testing.T) {
	h, ids := newH2(100), newest{}
	one, wireOne := connect(t, h)
	two, wireTwo := connect(t, h)
	fill := func(c *H2Conn, w *wire, kind Kind) (n int) {
		t.Helper()
		for n <= 100 && ids.begin(t, h, c, w, kind) == nil {
			n++
		}
		return n
	}
	if n := fill(one, wireOne, Waiting); n != 33 {
		t.Errorf("a connection that is alone has %d streams that wait, want 33", n)
	}
	if n := fill(one, wireOne, Long); n != 17 {
		t.Errorf("besides it has %d requests, want 17", n)
	}
	if n := fill(two, wireTwo, Long); n != 25 {
		t.Errorf("the second connection has %d requests, want 25", n)
	}
	var ends []func()
	for len(ends) <= 100 {
		end, err := h.Begin(new(net.TCPAddr), Waiting)
		if err != nil {
			break
		}
		ends = append(ends, end)
	}
	if len(ends) != 23 {
		t.Errorf("%d requests that wait come another way, want 23", len(ends))
	}
	if h.Open() != 98 || h.Refused() != 4 {
		t.Errorf("%d are open and %d were refused, want 98 and 4", h.Open(), h.Refused())
	}
	for _, end := range ends {
		end()
	}
	for id := uint32(2); id <= ids[two]; id += 2 {
		answer(t, two, id)
	}
	_ = one.Close()
	if n := h.Open(); n != 0 {
		t.Errorf("%d streams are open after all have ended, want 0", n)
	}
	receive(t, one, wireOne, raw(frameHeaders, 0x4, 1001, 10))
	if n := h.Open(); n != 0 {
		t.Errorf("%d streams are open on a closed connection, want 0", n)
	}
}

// A stream is open until the end of its answer is written, though it was served before:
// its client may take no answers.
func TestAStreamIsOpenUntilItsAnswerIsWritten(t *testing.T) {
	h := newH2(100)
	c, w := connect(t, h)
	receive(t, c, w, requests(1, 1, message))
	end, err := h.Begin(c.RemoteAddr(), Short)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if n := h.Open(); n != 1 {
		t.Errorf("%d streams are open before the answer is written, want 1", n)
	}
	answer(t, c, 1)
	if n := h.Open(); n != 0 {
		t.Errorf("%d streams are open after the answer was written, want 0", n)
	}
}

// DATA that arrives after the end of its stream is not counted: gRPC drops it.
func TestLateFramesAreNotCounted(t *testing.T) {
	c, w := connect(t, newH2(1<<16))
	for id := uint32(1); id <= 2001; id += 2 {
		receive(t, c, w, raw(frameHeaders, 0x4, id, 60))
		answer(t, c, id)
		receive(t, c, w, raw(frameData, 0, id, 10))
	}
	if c.mu.fragments != 0 || len(c.mu.open) != 0 {
		t.Errorf("%d fragments of %d streams, want none", c.mu.fragments, len(c.mu.open))
	}
}
