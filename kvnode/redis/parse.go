package redis

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// errHTTP closes a connection without an answer: a web page has sent a form to the port.
var errHTTP = errors.New("redis: HTTP request")

// protocolError is the client's mistake. It is answered, and the connection closed.
func protocolError(format string, args ...any) error {
	return failf("ERR Protocol error: "+format, args...)
}

// parser reads commands. An argument takes memory as its bytes arrive, never for a length that was announced.
type parser struct {
	r   *bufio.Reader
	mem *memory
	// started is set while a command is arriving.
	started bool
	// deadline is when the rest of the command, or the next command of a MULTI, must have arrived. It is zero before
	// the first wait.
	deadline time.Time
}

func newParser(r io.Reader, mem *memory) *parser {
	return &parser{r: bufio.NewReaderSize(r, mem.limits.line), mem: mem}
}

// next reads a command. Its memory is held for parsing.
func (p *parser) next() ([]string, error) {
	for {
		p.started, p.deadline = false, time.Time{}
		p.mem.free(parsing) // of an empty line
		first, err := p.r.Peek(1)
		if err != nil {
			return nil, err
		}
		p.started = true
		var args []string
		if first[0] == '*' {
			args, err = p.array()
		} else {
			args, err = p.inline()
		}
		if len(args) > 0 || err != nil { // Redis skips empty ones
			return args, err
		}
	}
}

// line returns a line with its end. It is valid until the next read.
func (p *parser) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = protocolError("%s", tooLarge("bytes of a line", len(line)+1, p.mem.limits.line))
	}
	return line, err
}

// array reads a command as clients send it, an array of bulk strings.
func (p *parser) array() ([]string, error) {
	count, err := p.length('*', "multibulk", p.mem.limits.args)
	if err != nil {
		return nil, err
	}
	args := make([]string, 0, max(0, min(count, 8)))
	for range count { // none if it is negative
		size, err := p.length('$', "bulk", p.mem.limits.bulk)
		if err == nil && size < 0 {
			err = protocolError("invalid bulk length: %d", size)
		}
		if err != nil {
			return nil, err
		}
		arg, err := p.bulk(size)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

// length reads a line such as $12. The length may be negative.
func (p *parser) length(kind byte, what string, limit int) (int, error) {
	line, err := p.line()
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, protocolError("expected '%c', got '%c'", kind, line[0])
	}
	digits, complete := bytes.CutSuffix(line[1:], []byte("\r\n"))
	n, err := strconv.Atoi(string(digits))
	switch {
	case !complete || err != nil:
		return 0, protocolError("invalid %s length: %.32q", what, digits)
	case n > limit:
		return 0, protocolError("invalid %s length: %d, the limit is %d", what, n, limit)
	}
	return n, nil
}

// bulk reads a string of n bytes.
func (p *parser) bulk(n int) (string, error) {
	if err := p.mem.take(parsing, argOverhead); err != nil {
		return "", err
	}
	var b strings.Builder
	for b.Len() < n {
		part, err := p.r.Peek(min(n-b.Len(), p.r.Size()))
		if err == nil {
			err = p.mem.take(parsing, len(part))
		}
		if err != nil {
			return "", err
		}
		b.Write(part)
		_, _ = p.r.Discard(len(part)) // Peek has them
	}
	end, err := p.r.Peek(2)
	if err == nil && string(end) != "\r\n" {
		err = protocolError("bulk string does not end with CRLF")
	}
	_, _ = p.r.Discard(len(end))
	return b.String(), err
}

// inline reads a line as users type it: words without quotes.
func (p *parser) inline() ([]string, error) {
	line, err := p.line()
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(line, `"'`) {
		return nil, protocolError("an inline command has quotes: send an array of bulk strings")
	}
	args := strings.Fields(string(line))
	if len(args) > p.mem.limits.args {
		return nil, protocolError("%s", tooLarge("arguments of a command", len(args), p.mem.limits.args))
	}
	if len(args) > 0 && (strings.EqualFold(args[0], "POST") || strings.EqualFold(args[0], "Host:")) {
		return nil, errHTTP
	}
	return args, p.mem.take(parsing, len(line)+len(args)*argOverhead)
}
