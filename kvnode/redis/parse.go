package redis

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	// maxArgs limits the arguments of a command, with its name.
	maxArgs = 1024
	// maxInline limits a line: an inline command, or the length of an array or a bulk string.
	maxInline = 64 << 10
	// firstBuffer is the size of a connection's read buffer. A larger one counts against the shared budget.
	firstBuffer = 16 << 10
	// maxCommand limits the bytes of one command.
	maxCommand = 4 << 20
)

// errHTTP closes a connection without an answer: a web page has sent a form to the port.
var errHTTP = errors.New("redis: HTTP request")

// protocolError is the client's mistake. It is answered, and the connection closed.
func protocolError(format string, args ...any) error {
	return failf("ERR Protocol error: "+format, args...)
}

// errMore means that the buffer does not hold a whole command yet.
var errMore = errors.New("redis: incomplete command")

// parser reads commands. Its memory is bounded by what has arrived, never by a length that was announced.
type parser struct {
	r       io.Reader
	maxBulk int
	budget  *atomic.Int64 // bytes of all connections' buffers above firstBuffer that are still free
	taken   int64

	buf        []byte
	start, end int
}

func newParser(r io.Reader, maxBulk int, budget *atomic.Int64) *parser {
	return &parser{r: r, maxBulk: maxBulk, budget: budget, buf: make([]byte, firstBuffer)}
}

// close returns the buffer's memory to the budget.
func (p *parser) close() {
	p.budget.Add(p.taken)
	p.taken = 0
}

// buffered returns the next command if all of it has arrived, else nil.
func (p *parser) buffered() ([]string, error) {
	for p.start < p.end {
		args, n, err := parseCommand(p.buf[p.start:p.end], p.maxBulk)
		if errors.Is(err, errMore) {
			return nil, nil //nolint:nilnil // nil is "not yet"
		}
		if err != nil {
			return nil, err
		}
		p.start += n
		if len(args) > 0 { // Redis skips empty ones
			return args, nil
		}
	}
	return nil, nil //nolint:nilnil // as above
}

// next reads until a command is complete.
func (p *parser) next() ([]string, error) {
	for {
		if args, err := p.buffered(); args != nil || err != nil {
			return args, err
		}
		if err := p.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads once. It makes room first: the unread bytes move to the front, or the buffer doubles.
func (p *parser) fill() error {
	switch {
	case p.start == p.end:
		p.start, p.end = 0, 0
		if p.taken > 0 { // a large command is over
			p.close()
			p.buf = make([]byte, firstBuffer)
		}
	case p.start > 0 && p.end == len(p.buf):
		p.end = copy(p.buf, p.buf[p.start:p.end])
		p.start = 0
	}
	if p.end == len(p.buf) {
		if err := p.grow(); err != nil {
			return err
		}
	}
	n, err := p.r.Read(p.buf[p.end:])
	p.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (p *parser) grow() error {
	more := int64(len(p.buf))
	if len(p.buf) >= maxCommand {
		return protocolError("command exceeds %d bytes", maxCommand)
	}
	if p.budget.Add(-more) < 0 {
		p.budget.Add(more)
		return protocolError("too many large commands at once, try again later")
	}
	p.taken += more
	larger := make([]byte, 2*len(p.buf))
	p.end = copy(larger, p.buf[p.start:p.end])
	p.start, p.buf = 0, larger
	return nil
}

// parseCommand returns the first command in b and its length. Its arguments share one string.
func parseCommand(b []byte, maxBulk int) (args []string, n int, err error) {
	if b[0] != '*' {
		return parseInline(b)
	}
	count, at, err := parseLength(b, 1, "multibulk", maxArgs)
	if err != nil {
		return nil, 0, err
	}
	if count <= 0 {
		return nil, at, nil
	}
	// Each argument takes four bytes at least, so what has arrived bounds the slice.
	bounds := make([][2]int, 0, min(count, len(b)/4+1))
	for range count {
		if at >= len(b) {
			return nil, 0, errMore
		}
		if b[at] != '$' {
			return nil, 0, protocolError("expected '$', got '%c'", b[at])
		}
		var size int
		if size, at, err = parseLength(b, at+1, "bulk", maxBulk); err != nil {
			return nil, 0, err
		}
		switch {
		case size < 0:
			return nil, 0, protocolError("invalid bulk length")
		case len(b)-at < size+2:
			return nil, 0, errMore
		case b[at+size] != '\r' || b[at+size+1] != '\n':
			return nil, 0, protocolError("bulk string does not end with CRLF")
		}
		bounds = append(bounds, [2]int{at, at + size})
		at += size + 2
	}
	all := string(b[:at])
	args = make([]string, len(bounds))
	for i, s := range bounds {
		args[i] = all[s[0]:s[1]]
	}
	return args, at, nil
}

// parseLength returns the number in b[from:] up to CRLF, and the place after it.
func parseLength(b []byte, from int, what string, limit int) (value, next int, err error) {
	i := bytes.IndexByte(b[from:], '\n')
	if i < 0 {
		if len(b)-from > 32 {
			return 0, 0, protocolError("invalid %s length", what)
		}
		return 0, 0, errMore
	}
	line := b[from : from+i]
	if len(line) == 0 || line[len(line)-1] != '\r' {
		return 0, 0, protocolError("invalid %s length", what)
	}
	value, err = strconv.Atoi(string(line[:min(len(line)-1, 32)]))
	if err != nil || value < -1 || value > limit {
		return 0, 0, protocolError("invalid %s length, at most %d is allowed", what, limit)
	}
	return value, from + i + 1, nil
}

// parseInline parses a line as users type it: words without quotes.
func parseInline(b []byte) (args []string, n int, err error) {
	i := bytes.IndexByte(b, '\n')
	if i > maxInline || i < 0 && len(b) > maxInline {
		return nil, 0, protocolError("too big inline request")
	}
	if i < 0 {
		return nil, 0, errMore
	}
	args = strings.Fields(string(b[:i]))
	if len(args) > maxArgs {
		return nil, 0, protocolError("at most %d arguments are allowed", maxArgs)
	}
	if len(args) > 0 && (strings.EqualFold(args[0], "POST") || strings.EqualFold(args[0], "Host:")) {
		return nil, 0, errHTTP
	}
	return args, i + 1, nil
}
