package transport

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds the name of a new member, and what Shown returns of a text: a longer
// name would fill a screen, or a log.
const MaxNameBytes = 128

// Shown returns what others have said, such as the name of a member, fit for
// terminals and logs: in one line, not long, and quoted if there is anything in it
// that a terminal would act upon, or that does not show.
func Shown(s string) string { return ShownUpTo(s, MaxNameBytes) }

// ShownUpTo is Shown with another limit, in bytes of s.
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
	if !shows(s) {
		s = strconv.QuoteToASCII(s)
	}
	if cut {
		s += more
	}
	return s
}

// shows reports whether all of s shows as what it is.
func shows(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// CheckName refuses a name for a new member that Shown would cut or quote. A member that has
// such a name already keeps it: its directory and the flags of all members have it.
func CheckName(name string) error {
	switch {
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the name %s (Config.Name) has %d bytes and may have %d", Shown(name), len(name), MaxNameBytes)
	case !shows(name):
		return fmt.Errorf("the name %s (Config.Name) has characters that do not print, which terminals act upon", Shown(name))
	default:
		return nil
	}
}
