package redis

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// testLimits are those of a gateway without flags.
var testLimits = newLimits(Config{MaxBulk: 1 << 20, MaxConnMemory: 4 << 20, MaxMemory: 5 << 20})

func parseAll(r io.Reader) (commands [][]string, err error) {
	var all atomic.Int64
	mem := memory{limits: &testLimits, all: &all}
	p := newParser(r, &mem)
	for {
		args, err := p.next()
		if err != nil {
			if mem.close(); all.Load() != 0 || mem.used != 0 {
				return nil, errors.New("some memory stays taken")
			}
			return commands, err
		}
		mem.free(parsing)
		commands = append(commands, args)
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		in   string
		want [][]string
		err  string
	}{
		{in: "*1\r\n$4\r\nPING\r\n", want: [][]string{{"PING"}}},
		{in: "*2\r\n$3\r\nGET\r\n$0\r\n\r\nPING  a\r\n\r\n*0\r\n*-1\r\nQUIT\n", want: [][]string{{"GET", ""}, {"PING", "a"}, {"QUIT"}}},
		{in: "*2\r\n$3\r\nGET\r\n$5\r\na\r\nb\x00\r\n", want: [][]string{{"GET", "a\r\nb\x00"}}},
		{in: "*1000000000\r\n", err: "invalid multibulk length: 1000000000, the limit is 1024"},
		{in: "*1025\r\n", err: "invalid multibulk length: 1025, the limit is 1024"},
		{in: "*-2\r\n*1\r\n$4\r\nPING\r\n", want: [][]string{{"PING"}}},
		{in: "*99999999999999999999999\r\n", err: "invalid multibulk length"},
		{in: "*1" + strings.Repeat(" ", 100) + "\r\n", err: "invalid multibulk length"},
		{in: "*" + strings.Repeat("1", 40) + "\r\n", err: "invalid multibulk length"},
		{in: "*" + strings.Repeat("0", 20000), err: "bytes of a line: 16385, the limit is 16384"},
		{in: "*1\n", err: "invalid multibulk length"},
		{in: "*\n", err: "invalid multibulk length"},
		{in: "*1\r\n$1000000000\r\n", err: "invalid bulk length: 1000000000, the limit is 1048576"},
		{in: "*1\r\n$-1\r\n", err: "invalid bulk length"},
		{in: "*1\r\n$1\r\nabc", err: "does not end"},
		{in: "*1\r\nPING\r\n", err: "expected '$'"},
		{in: "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\n", err: "HTTP"},
		{in: "Host: localhost\r\nSET k v\r\n", err: "HTTP"},
		{in: strings.Repeat("a", 20000), err: "bytes of a line"},
		{in: strings.Repeat("a ", 1025) + "\r\n", err: "arguments of a command: 1025"},
		{in: "*5\r\n" + strings.Repeat("$1000000\r\n"+strings.Repeat("a", 1000000)+"\r\n", 5), err: "bytes of a connection: 4"},
	} {
		for _, r := range []io.Reader{strings.NewReader(test.in), iotest.HalfReader(strings.NewReader(test.in))} {
			got, err := parseAll(r)
			if test.err == "" && !errors.Is(err, io.EOF) || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%.40q: error %v, want %q", test.in, err, test.err)
			}
			if !slices.EqualFunc(got, test.want, slices.Equal[[]string]) {
				t.Errorf("%.40q: %q, want %q", test.in, got, test.want)
			}
		}
	}
}

// TestMemory checks that bytes count as they arrive, and not as they are announced.
func TestMemory(t *testing.T) {
	var all atomic.Int64
	first := memory{limits: &testLimits, all: &all}
	announced := "*2\r\n$4\r\nECHO\r\n$1048576\r\n"
	if _, err := newParser(strings.NewReader(announced), &first).next(); !errors.Is(err, io.EOF) {
		t.Errorf("next() = %v, want EOF", err)
	}
	if first.used > 1000 {
		t.Errorf("%d bytes are counted for an argument that has not arrived", first.used)
	}
	first.close()
	if err := first.take(kept, 4<<20); err != nil {
		t.Error(err)
	}
	if err := first.take(kept, 1); err == nil || err.Error() != "ERR bytes of a connection: 4194305, the limit is 4194304" {
		t.Errorf("take() above a connection's limit = %v", err)
	}
	second := memory{limits: &testLimits, all: &all}
	if err := second.take(parsing, 1<<20+2*ownMemory); err != nil {
		t.Error(err)
	}
	const want = "ERR bytes of all connections, try again later: 5242881, the limit is 5242880"
	if err := second.take(parsing, 1); err == nil || err.Error() != want {
		t.Errorf("take() above all connections' limit = %v", err)
	}
	second.move(parsing, kept)
	second.free(parsing)
	if second.used != 1<<20+2*ownMemory || all.Load() != 5<<20 {
		t.Errorf("after move(): %d of a connection and %d of all", second.used, all.Load())
	}
	second.close()
	first.close()
	if all.Load() != 0 {
		t.Errorf("%d bytes stay taken", all.Load())
	}
}

// slowConn is a client that takes its replies.
type slowConn struct {
	net.Conn

	writeBy time.Time
}

func (c *slowConn) SetWriteDeadline(t time.Time) error { c.writeBy = t; return nil }
func (c *slowConn) Write(b []byte) (int, error)        { return len(b), nil }

// A client has the more time for a reply the longer it is, and not from the beginning for each part of it.
func TestTimeForAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := &slowConn{}
		c := newConn(&Server{cfg: Config{WriteTimeout: 10 * time.Second}, limits: testLimits}, at)
		for range 2 {
			began := time.Now()
			c.reply(strings.Repeat("a", 10*minRate))
			if took := at.writeBy.Sub(began); took < 19*time.Second || took > 21*time.Second {
				t.Errorf("a reply of 10 s at the lowest rate has %v, want 20 s", took)
			}
			time.Sleep(time.Minute)
		}
	})
}

// FuzzParse checks that commands do not depend on how their bytes arrive, and the limits.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"*1\r\n$4\r\nPING\r\n", "GET a\r\n", "*1000000000\r\n", "*2\r\n$1\r\na\r\n$0\r\n\r\n", "POST / \r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		whole, errWhole := parseAll(strings.NewReader(in))
		bytewise, errBytewise := parseAll(iotest.OneByteReader(strings.NewReader(in)))
		if !slices.EqualFunc(whole, bytewise, slices.Equal[[]string]) || (errWhole == nil) != (errBytewise == nil) {
			t.Errorf("at once: %q, %v; byte by byte: %q, %v", whole, errWhole, bytewise, errBytewise)
		}
		for _, args := range whole {
			if len(args) == 0 || len(args) > testLimits.args {
				t.Errorf("%d arguments", len(args))
			}
		}
	})
}
