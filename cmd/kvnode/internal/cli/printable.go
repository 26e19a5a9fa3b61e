package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable escapes what a terminal would act upon, or not show: members say what
// they like of themselves, and old ones of others.
func printable(s string) string {
	return escape(s, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// printableJSON does the same in JSON, where such runes are in strings only.
func printableJSON(s string) string {
	return escape(s, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			return fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// escape puts other text in the place of what does not print, lines and tabs apart.
func escape(s string, other func(rune) string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, hidden) {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			b.WriteString(other(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// cellBytes is the most that a cell of a table shows.
const cellBytes = 1 << 10

// oneLine keeps a text from breaking the table.
func oneLine(s string) string {
	if len(s) > cellBytes {
		s = strings.ToValidUTF8(s[:cellBytes], "") + "…"
	}
	return printable(strings.Join(strings.Fields(s), " "))
}
