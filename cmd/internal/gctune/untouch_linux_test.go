package gctune

import (
	"bytes"
	"testing"
)

// The system provides zeros for pages that it has taken, so bytes that were written show what it left.
func TestUntouchTakesPages(t *testing.T) {
	memory := bytes.Repeat([]byte{1}, mib)
	untouch(memory)
	if n := bytes.Count(memory, []byte{1}); n > mib/4 {
		t.Errorf("%d of %d bytes are still there", n, mib)
	}
	small := []byte{1, 2, 3}
	untouch(small)
	if small[0] != 1 {
		t.Error("less than a page was taken")
	}
}
