package fence

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TokenSize is the length of a token's binary form in bytes.
const TokenSize = 16

// maxTextLen is the length of the longest token as text: two numbers of 20
// digits and the dot.
const maxTextLen = 20 + 1 + 20

// ErrMalformed is returned when bytes or text are not a token. Match it with
// errors.Is.
var ErrMalformed = errors.New("fence: malformed token")

// Token is a number that rises with every change of holder: the term first,
// then the index. It is comparable, and its zero value is no token at all:
// every gate refuses it.
//
// A token is not a secret and proves nothing about its sender. It orders
// holders that are honest but late.
type Token struct {
	// Term is the raft term in which the holder leads. It is zero when the
	// source has no terms, as with the revisions of a lock key.
	Term uint64
	// Index is the commit index known to the holder when it took the token, or
	// the create revision of its lock key.
	Index uint64
}

// IsZero reports whether t is the zero token, which no holder has.
func (t Token) IsZero() bool { return t == Token{} }

// Compare returns -1 if t is older than o, 0 if they are equal and +1 if t is
// newer.
func (t Token) Compare(o Token) int {
	return cmp.Or(cmp.Compare(t.Term, o.Term), cmp.Compare(t.Index, o.Index))
}

// Less reports whether t is older than o.
func (t Token) Less(o Token) bool { return t.Compare(o) < 0 }

// String returns the token as "term.index", both in decimal. Text does not
// sort like tokens do; the binary form does.
func (t Token) String() string { return string(t.appendText(make([]byte, 0, maxTextLen))) }

func (t Token) appendText(b []byte) []byte {
	b = strconv.AppendUint(b, t.Term, 10)
	b = append(b, '.')
	return strconv.AppendUint(b, t.Index, 10)
}

// ParseToken is the inverse of [Token.String]. It accepts that form only (no
// sign, space or leading zero), so that a token has one spelling. The zero
// token parses: a codec carries, a gate judges.
func ParseToken(s string) (Token, error) {
	// Hostile text is not repeated in the error before its length is known.
	if len(s) > maxTextLen {
		return Token{}, fmt.Errorf("%w: text of %d bytes, at most %d are possible", ErrMalformed, len(s), maxTextLen)
	}
	term, index, _ := strings.Cut(s, ".")
	var t Token
	var errTerm, errIndex error
	t.Term, errTerm = strconv.ParseUint(term, 10, 64)
	t.Index, errIndex = strconv.ParseUint(index, 10, 64)
	if errTerm != nil || errIndex != nil || t.String() != s {
		return Token{}, fmt.Errorf("%w: %q is not of the form term.index", ErrMalformed, s)
	}
	return t, nil
}

// AppendText implements encoding.TextAppender with the form of [Token.String].
func (t Token) AppendText(b []byte) ([]byte, error) { return t.appendText(b), nil }

// MarshalText implements encoding.TextMarshaler with the form of
// [Token.String]. In JSON a token is a string, since a JSON number of 64 bits
// loses digits in many readers.
func (t Token) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// UnmarshalText implements encoding.TextUnmarshaler as [ParseToken] does. It
// leaves t alone when it fails.
func (t *Token) UnmarshalText(text []byte) error {
	p, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

// AppendBinary implements encoding.BinaryAppender: [TokenSize] bytes, term
// then index, big endian. bytes.Compare orders this form like the tokens, so
// that it may be a key in an ordered store.
func (t Token) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, t.Term)
	return binary.BigEndian.AppendUint64(b, t.Index), nil
}

// MarshalBinary implements encoding.BinaryMarshaler with the form of
// [Token.AppendBinary].
func (t Token) MarshalBinary() ([]byte, error) {
	return t.AppendBinary(make([]byte, 0, TokenSize))
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It accepts exactly
// [TokenSize] bytes, and leaves t alone when it fails.
func (t *Token) UnmarshalBinary(data []byte) error {
	if len(data) != TokenSize {
		return fmt.Errorf("%w: %d bytes, want %d", ErrMalformed, len(data), TokenSize)
	}
	t.Term = binary.BigEndian.Uint64(data)
	t.Index = binary.BigEndian.Uint64(data[8:])
	return nil
}
