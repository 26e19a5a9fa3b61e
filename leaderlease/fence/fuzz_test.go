package fence_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/leaderlease/go/leaderlease/fence"
)

// FuzzParseTokenAcceptsOneSpelling: text either is the token's own spelling,
// or is refused by name.
func FuzzParseTokenAcceptsOneSpelling(f *testing.F) {
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
