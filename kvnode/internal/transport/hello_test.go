package transport

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// Each hello that Validate accepts fits into a packet, also of a death notice, however JSON writes it.
func TestWhatValidateAcceptsFits(t *testing.T) {
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
		if data, _ := json.Marshal(obituary{Hello: test.h}); err == nil && len(data) > maxHello {
			t.Errorf("%s: %d bytes, want %d at most", test.name, len(data), maxHello)
		}
	}
}
