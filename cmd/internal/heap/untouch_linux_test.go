package heap

import (
	"bytes"
	"testing"
)

// The system gives zeros for what it has taken, so what was written shows what it took.
func TestUntouchTakesPages(t *testing.T) {
	room := bytes.Repeat([]byte{1}, mib)
	untouch(room)
	if n := bytes.Count(room, []byte{1}); n > mib/4 {
		t.Errorf("%d of %d bytes are still provided", n, mib)
	}
	small := []byte{1, 2, 3}
	untouch(small)
	if small[0] != 1 {
		t.Error("less than a page was taken")
	}
}
