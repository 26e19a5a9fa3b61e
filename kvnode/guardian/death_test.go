package guardian

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The newest will that is whole counts, and a dead child is not waited for.
func TestTheNewestWillCounts(t *testing.T) {
	w := readWills(strings.NewReader(`{"hello":{"name":"a"}}{"hello":{"name":"b"},"peers":[{"id":2,"addrs":["x"]}]}{"hello":{"na`))
	if got := w.last(); got == nil || got.Hello.Name != "b" || len(got.Peers) != 1 {
		t.Errorf("last() = %+v, want the second", got)
	}
	synctest.Test(t, func(t *testing.T) {
		r, held := io.Pipe()
		defer held.Close()
		began := time.Now()
		if got := readWills(r).last(); got != nil || time.Since(began) != lastWords {
			t.Errorf("last() of a child whose pipe somebody holds = %v after %v, want none after %v", got, time.Since(began), lastWords)
		}
	})
}
