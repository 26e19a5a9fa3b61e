package kvnode

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds the name of a new member: what is longer would be cut where
// it is shown.
const MaxNameBytes = shownBytes

// shownBytes is how much is shown of what others call themselves. Longer: one name
// fills a screen, or a log.
const shownBytes = 128

// Shown returns what others have said, such as the name of a member, fit for
// terminals and logs: in one line, not long, and quoted if there is anything in it
// that a terminal would act upon, or that does not show.
func Shown(s string) string { return shown(s, shownBytes) }

func shown(s string, limit int) string {
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

// checkName refuses a name that would not be shown as it is. It is asked when a
// member begins: one that has such a name already keeps it, as its directory and
// the flags of all members have it.
func (c *Config) checkName() error {
	switch {
	case len(c.Name) > MaxNameBytes:
		return fmt.Errorf("the name %s (Config.Name) has %d bytes and may have %d", Shown(c.Name), len(c.Name), MaxNameBytes)
	case !shows(c.Name):
		return fmt.Errorf("the name %s (Config.Name) has characters that do not print, which terminals act upon", Shown(c.Name))
	default:
		return nil
	}
}
