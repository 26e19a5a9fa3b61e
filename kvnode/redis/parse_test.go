package redis

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

func parseAll(r io.Reader) (commands [][]string, err error) {
	var budget atomic.Int64
	budget.Store(maxCommand)
	p := newParser(r, 1<<20, &budget)
	for {
		args, err := p.next()
		if err != nil {
			p.close()
			if budget.Load() != maxCommand {
				return nil, errors.New("the parser keeps a part of the budget")
			}
			return commands, err
		}
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
		{in: "*1000000000\r\n", err: "invalid multibulk length"},
		{in: "*1025\r\n", err: "invalid multibulk length"},
		{in: "*-2\r\n", err: "invalid multibulk length"},
		{in: "*99999999999999999999999\r\n", err: "invalid multibulk length"},
		{in: "*" + strings.Repeat("0", 100), err: "invalid multibulk length"},
		{in: "*1\n", err: "invalid multibulk length"},
		{in: "*1\r\n$1000000000\r\n", err: "invalid bulk length"},
		{in: "*1\r\n$-1\r\n", err: "invalid bulk length"},
		{in: "*1\r\n$1\r\nabc", err: "does not end"},
		{in: "*1\r\nPING\r\n", err: "expected '$'"},
		{in: "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\n", err: "HTTP"},
		{in: "Host: localhost\r\nSET k v\r\n", err: "HTTP"},
		{in: strings.Repeat("a", maxInline+2), err: "too big"},
		{in: strings.Repeat("a ", maxArgs+1) + "\r\n", err: "arguments"},
		{in: "*5\r\n" + strings.Repeat("$1000000\r\n"+strings.Repeat("a", 1000000)+"\r\n", 5), err: "exceeds"},
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

func TestParserSharesABudget(t *testing.T) {
	var budget atomic.Int64
	p := newParser(strings.NewReader("*1\r\n$30000\r\n"+strings.Repeat("a", 30000)), 1<<20, &budget)
	if _, err := p.next(); err == nil || !strings.Contains(err.Error(), "large commands") {
		t.Errorf("without a budget: %v, want an error that says so", err)
	}
	if got := budget.Load(); got != 0 {
		t.Errorf("budget %d, want 0", got)
	}
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
			if len(args) == 0 || len(args) > maxArgs {
				t.Errorf("%d arguments", len(args))
			}
		}
	})
}
