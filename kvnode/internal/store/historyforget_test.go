package store

import "testing"

// What is forgotten is gone from the one page there is, too.
func TestHistoryForgetsWithinAPage(t *testing.T) {
	h := newHistory()
	for rev := range int64(10) {
		h.add(&Version{mod: rev + 1})
	}
	h.forget(8)
	if n := (*h.pages.Load())[0].n.Load(); n != 3 {
		t.Errorf("%d versions are left, want 3", n)
	}
}
