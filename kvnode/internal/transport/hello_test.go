package transport

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each hello that Validate accepts fits into a packet, also into a death notice, with every escape of JSON.
func TestValidHelloFitsIntoPacket(t *testing.T) {
	for _, test := range []struct {
		name string
		h    Hello
		want bool
	}{
		{"long, in plain letters", Hello{Name: strings.Repeat("x", maxName), Token: strings.Repeat("x", maxToken), PeerURLs: strings.Repeat("x", maxURLs)}, true},
		{"characters that JSON escapes", Hello{Name: strings.Repeat("<", maxName), Token: strings.Repeat("<", maxToken)}, true},
		{"and URLs", Hello{Name: strings.Repeat("<", maxName), Token: strings.Repeat("<", maxToken), PeerURLs: strings.Repeat("x", maxURLs/2)}, false},
	} {
		err := test.h.Validate()
		if (err == nil) != test.want {
			t.Errorf("%s: Validate() = %v, want it accepted: %v", test.name, err, test.want)
		}
		test.h.To, test.h.Hold, test.h.ProcessID = math.MaxUint64, math.MaxInt64, ProcessID{1}
		if data, _ := json.Marshal(deathNotice{Hello: test.h}); err == nil && len(data) > maxHello {
			t.Errorf("%s: %d bytes, want %d at most", test.name, len(data), maxHello)
		}
	}
}

// Shown returns one short line without control characters.
func TestShown(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes)
	for _, test := range []struct{ what, name, want string }{
		{"none", "", ""},
		{"a plain one", "n1.example", "n1.example"},
		{"letters of any script", "Knöten 節点", "Knöten 節点"},
		{"an escape sequence", "\x1b[2Ja", `"\x1b[2Ja"`},
		{"one of the second half", "\u009b2Ja", `"\u009b2Ja"`},
		{"a line end", "a\nb", `"a\nb"`},
		{"a tab", "a\tb", `"a\tb"`},
		{"what reading the line round", "a\u202eb", `"a\u202eb"`},
		{"no UTF-8", "a\xff", `"a\xff"`},
		{"the longest", long, long},
		{"a longer one", long + "y", long + "…"},
		{"a longer one with an escape", "\x1b" + long, `"\x1b` + long[1:] + `"…`},
		{"a rune across the end", long[1:] + "é", long[1:] + "…"},
	} {
		if got := Shown(test.name); got != test.want {
			t.Errorf("Shown(%s) = %s, want %s", test.what, got, test.want)
		}
	}
	if got := Shown(strings.Repeat("\x1b", 60_000)); len(got) > 5*MaxNameBytes || !utf8.ValidString(got) {
		t.Errorf("Shown(60,000 escapes) has %d bytes, want few", len(got))
	}
}
