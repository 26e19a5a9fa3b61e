package kvclient

import (
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
)

func TestTrailersSayHowAReadWasServed(t *testing.T) {
	for _, c := range []struct {
		md        metadata.MD
		path      string
		remaining time.Duration
	}{
		{metadata.Pairs("x-lease-read-path", "lease", "x-lease-remaining-ms", "712"), "lease", 712 * time.Millisecond},
		{metadata.Pairs("x-lease-read-path", "lease", "x-lease-remaining-ms", "0"), "lease", 0},
		{metadata.Pairs("x-lease-read-path", "read_index"), "read_index", -1},
		{metadata.Pairs("x-lease-read-path", "lease", "x-lease-remaining-ms", "much"), "lease", -1},
		{nil, "", -1},
	} {
		var s Served
		WithServed(t.Context(), &s)
		s.take(c.md)
		if s.Path != c.path || s.Remaining != c.remaining {
			t.Errorf("trailers %v say %+v, want %q, %v", c.md, s, c.path, c.remaining)
		}
	}
}
