package redis

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// A reply is nil, a string (bulk), an int64, one of the types below, or a slice of replies.
type (
	// simple is a simple string, such as OK.
	simple string
	// failure is an error. Its first word is the code.
	failure string
	// pairs is a map: key, value, key, value. In RESP2 it is an array.
	pairs []any
	// nilArray is the reply of an EXEC that was aborted.
	nilArray struct{}
	// token stands for the revision of the transaction, which is known when it is committed.
	token struct{}
)

const ok = simple("OK")

const (
	errSyntax  = failure("ERR syntax error")
	errInteger = failure("ERR value is not an integer or out of range")
	errExpiry  = failure("ERR invalid expire time")
)

// Error implements error, so that a failure may be returned by what a command calls.
func (f failure) Error() string { return string(f) }

func failf(format string, args ...any) failure { return failure(fmt.Sprintf(format, args...)) }

// writeReply writes a reply. The writer keeps the first error.
func writeReply(w *bufio.Writer, r any, resp3 bool) {
	switch r := r.(type) {
	case nil:
		writeNil(w, '$', resp3)
	case nilArray:
		writeNil(w, '*', resp3)
	case simple:
		_, _ = w.WriteString("+" + string(r) + "\r\n")
	case failure:
		_, _ = w.WriteString("-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(string(r)) + "\r\n")
	case string:
		writeLength(w, '$', int64(len(r)))
		_, _ = w.WriteString(r)
		_, _ = w.WriteString("\r\n")
	case int64:
		writeLength(w, ':', r)
	case pairs:
		if resp3 {
			writeLength(w, '%', int64(len(r)/2))
		} else {
			writeLength(w, '*', int64(len(r)))
		}
		for _, e := range r {
			writeReply(w, e, resp3)
		}
	case []any:
		writeLength(w, '*', int64(len(r)))
		for _, e := range r {
			writeReply(w, e, resp3)
		}
	default:
		panic(fmt.Sprintf("redis: reply of type %T", r))
	}
}

// writeNil writes a missing value. In RESP2 it is a string or an array of length -1.
func writeNil(w *bufio.Writer, kind byte, resp3 bool) {
	if resp3 {
		_, _ = w.WriteString("_\r\n")
		return
	}
	writeLength(w, kind, -1)
}

func writeLength(w *bufio.Writer, kind byte, n int64) {
	var b [24]byte
	line := append(strconv.AppendInt(append(b[:0], kind), n, 10), '\r', '\n')
	_, _ = w.Write(line)
}
