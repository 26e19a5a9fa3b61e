package fence_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leaderlease/go/leaderlease/fence"
)

func TestTokenOrder(t *testing.T) {
	tests := []struct {
		name string
		a, b fence.Token
		want int
	}{
		{"zero equals itself", fence.Token{}, fence.Token{}, 0},
		{"zero is older than any other", fence.Token{}, fence.Token{Index: 1}, -1},
		{"equal", fence.Token{Term: 5, Index: 7}, fence.Token{Term: 5, Index: 7}, 0},
		{"index decides within a term", fence.Token{Term: 5, Index: 7}, fence.Token{Term: 5, Index: 8}, -1},
		{"a new term beats any index", fence.Token{Term: 5, Index: math.MaxUint64}, fence.Token{Term: 6}, -1},
		{"text order is not token order", fence.Token{Term: 9, Index: 1}, fence.Token{Term: 10, Index: 1}, -1},
		{"numbers above 2^63 stay positive", fence.Token{Term: math.MaxInt64}, fence.Token{Term: math.MaxUint64}, -1},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.a.Compare(tc.b); got != tc.want {
				t.Errorf("%v.Compare(%v) = %d, want %d", tc.a, tc.b, got, tc.want)
			}
			if got := tc.b.Compare(tc.a); got != -tc.want {
				t.Errorf("%v.Compare(%v) = %d, want %d", tc.b, tc.a, got, -tc.want)
			}
			if got, want := tc.a.Less(tc.b), tc.want < 0; got != want {
				t.Errorf("%v.Less(%v) = %v, want %v", tc.a, tc.b, got, want)
			}
		})
	}
}

func TestTokenIsZero(t *testing.T) {
	for tok, want := range map[fence.Token]bool{{}: true, {Term: 1}: false, {Index: 1}: false} {
		if got := tok.IsZero(); got != want {
			t.Errorf("%v.IsZero() = %v, want %v", tok, got, want)
		}
	}
}

func TestParseToken(t *testing.T) {
	tests := []struct {
		name, text string
		want       fence.Token
		ok         bool
	}{
		{"a codec carries zero", "0.0", fence.Token{}, true},
		{"no term", "0.17", fence.Token{Index: 17}, true},
		{"term and index", "4.120", fence.Token{Term: 4, Index: 120}, true},
		{
			"the largest token", "18446744073709551615.18446744073709551615",
			fence.Token{Term: math.MaxUint64, Index: math.MaxUint64},
			true,
		},
		{"one more than fits", "18446744073709551616.0", fence.Token{}, false},
		{"empty", "", fence.Token{}, false},
		{"dot only", ".", fence.Token{}, false},
		{"no dot", "4", fence.Token{}, false},
		{"no index", "4.", fence.Token{}, false},
		{"no term before the dot", ".4", fence.Token{}, false},
		{"three parts", "4.1.2", fence.Token{}, false},
		{"leading zero", "04.1", fence.Token{}, false},
		{"sign", "+4.1", fence.Token{}, false},
		{"negative", "4.-1", fence.Token{}, false},
		{"space", "4. 1", fence.Token{}, false},
		{"underscore", "1_0.1", fence.Token{}, false},
		{"hexadecimal", "0x4.1", fence.Token{}, false},
		{"other digits", "٤.1", fence.Token{}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := fence.ParseToken(tc.text)
			if got != tc.want || (err == nil) != tc.ok {
				t.Errorf("ParseToken(%q) = %v, %v, want %v, ok %v", tc.text, got, err, tc.want, tc.ok)
			}
			if !tc.ok && !errors.Is(err, fence.ErrMalformed) {
				t.Errorf("ParseToken(%q) = %v, want ErrMalformed", tc.text, err)
			}
		})
	}
}

func TestParseTokenDoesNotRepeatHostileText(t *testing.T) {
	_, err := fence.ParseToken(strings.Repeat("9", 1<<20))
	if !errors.Is(err, fence.ErrMalformed) || len(err.Error()) > 200 {
		t.Errorf("ParseToken(1 MiB) = error of %d bytes, want a short ErrMalformed", len(err.Error()))
	}
}

func TestUnmarshalBinaryLength(t *testing.T) {
	for n := range 2 * fence.TokenSize {
		tok := fence.Token{Term: 1, Index: 2}
		err := tok.UnmarshalBinary(make([]byte, n))
		if n == fence.TokenSize {
			if err != nil || !tok.IsZero() {
				t.Errorf("UnmarshalBinary(%d zero bytes) = %v, %v, want 0.0", n, tok, err)
			}
			continue
		}
		if !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("UnmarshalBinary(%d bytes) = %v, want ErrMalformed", n, err)
		}
		if want := (fence.Token{Term: 1, Index: 2}); tok != want {
			t.Errorf("after a failed UnmarshalBinary: token = %v, want %v", tok, want)
		}
	}
}

func TestTokenInJSON(t *testing.T) {
	type record struct {
		Token fence.Token            `json:"token"`
		Seen  map[fence.Token]string `json:"seen"`
	}
	tok := fence.Token{Term: 4, Index: math.MaxUint64}
	data, err := json.Marshal(record{tok, map[fence.Token]string{tok: "node 1"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"token":"4.18446744073709551615","seen":{"4.18446744073709551615":"node 1"}}`
	if string(data) != want {
		t.Errorf("Marshal() = %s, want %s", data, want)
	}
	var back record
	if err := json.Unmarshal(data, &back); err != nil || back.Token != tok || back.Seen[tok] != "node 1" {
		t.Errorf("Unmarshal(%s) = %+v, %v, want the record that was marshalled", data, back, err)
	}
	if err := json.Unmarshal([]byte(`{"token":"4"}`), &back); !errors.Is(err, fence.ErrMalformed) {
		t.Errorf("Unmarshal(token 4) = %v, want ErrMalformed", err)
	}
	if back.Token != tok {
		t.Errorf("after a failed Unmarshal: token = %v, want %v", back.Token, tok)
	}
}

func TestBinaryFormSortsLikeTheToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyToken.Draw(t, "a"), anyToken.Draw(t, "b")
		if got, want := bytes.Compare(binary(t, a), binary(t, b)), a.Compare(b); got != want {
			t.Fatalf("binary forms of %v and %v compare as %d, want %d", a, b, got, want)
		}
	})
}

// anyToken covers both ends of both numbers; rapid prefers small ones.
var anyToken = rapid.Custom(func(t *rapid.T) fence.Token {
	number := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 255, 256, 1 << 63, math.MaxUint64}))
	return fence.Token{Term: number.Draw(t, "term"), Index: number.Draw(t, "index")}
})

func binary(t rapid.TB, tok fence.Token) []byte {
	t.Helper()
	data, err := tok.MarshalBinary()
	if err != nil || len(data) != fence.TokenSize {
		t.Fatalf("%v.MarshalBinary() = %x, %v, want %d bytes", tok, data, err, fence.TokenSize)
	}
	return data
}

// FuzzParseTokenAcceptsOneSpelling: text either is the token's own spelling,
// or is refused by name.
func FuzzParseTokenAcceptsOneSpelling(f *testing.F) {
	for _, s := range []struct{ about, text string }{
		{"empty", ""},
		{"largest", "18446744073709551615.18446744073709551615"},
		{"leading zero", "04.120"},
		{"no dot", "4"},
		{"not utf8", "4.\xff1"},
		{"overflow", "18446744073709551616.1"},
		{"sign", "+4.-1"},
		{"three parts", "4.1.2"},
		{"token", "4.120"},
		{"too long", "000000000000000000000000000000000000000000.1"},
		{"zero", "0.0"},
	} {
		f.Add(s.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := fence.ParseToken(text)
		switch {
		case err == nil && tok.String() != text:
			t.Errorf("ParseToken(%q).String() = %q, want the text itself", text, tok)
		case err != nil && !errors.Is(err, fence.ErrMalformed):
			t.Errorf("ParseToken(%q) = %v, want ErrMalformed", text, err)
		case err != nil && !tok.IsZero():
			t.Errorf("ParseToken(%q) = %v with an error, want the zero token", text, tok)
		}
	})
}

// FuzzUnmarshalBinaryRoundTrips: bytes either are the token's own binary form,
// or are refused by name, and both codecs give the token back.
func FuzzUnmarshalBinaryRoundTrips(f *testing.F) {
	for _, s := range []struct{ about, data string }{
		{"empty", ""},
		{"largest", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"long", "\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00x!"},
		{"short", "\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00"},
		{"token", "\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00x"},
		{"zero", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		f.Add([]byte(s.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tok fence.Token
		if err := tok.UnmarshalBinary(data); err != nil {
			if !errors.Is(err, fence.ErrMalformed) || len(data) == fence.TokenSize {
				t.Errorf("UnmarshalBinary(%x) = %v, want ErrMalformed for a wrong length only", data, err)
			}
			return
		}
		if got := binary(t, tok); !bytes.Equal(got, data) {
			t.Errorf("UnmarshalBinary(%x) and back = %x", data, got)
		}
		if back, err := fence.ParseToken(tok.String()); back != tok || err != nil {
			t.Errorf("ParseToken(%q) = %v, %v, want %v", tok, back, err, tok)
		}
	})
}
