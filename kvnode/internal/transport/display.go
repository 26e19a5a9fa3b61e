package transport

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes limits the name of a new member, and the part of a text that Shown
// shows. A longer name would fill a screen or a log.
const MaxNameBytes = 128

// Shown makes a text from another program, such as the name of a member, safe for
// terminals and logs. It cuts a long text. It quotes a text with control characters
// or other characters that do not print.
func Shown(s string) string { return ShownUpTo(s, MaxNameBytes) }

// ShownUpTo is Shown with a limit in bytes of s.
func ShownUpTo(s string, limit int) string {
	const more = "…"
	cut := len(s) > limit
	if cut {
		end := limit
		for end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	if !isPrintable(s) {
		s = strconv.QuoteToASCII(s)
	}
	if cut {
		s += more
	}
	return s
}

// isPrintable reports whether s is valid UTF-8 and all its characters print.
func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// CheckName refuses a name for a new member that Shown would change. A member that
// already has such a name keeps it, because its directory and the flags of all
// members contain it.
func CheckName(name string) error {
	switch {
	case len(name) > MaxNameBytes:
		return fmt.Errorf("name %s (Config.Name) has %d bytes, the limit is %d", Shown(name), len(name), MaxNameBytes)
	case !isPrintable(name):
		return fmt.Errorf("name %s (Config.Name) has characters that do not print", Shown(name))
	default:
		return nil
	}
}
