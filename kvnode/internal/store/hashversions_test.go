package store_test

import "testing"

// Members of all versions hash alike, or those that are upgraded are said to be
// corrupt: whoever has to change this gives members a way to say so first.
func TestHashIsThatOfAllVersions(t *testing.T) {
	h, err := history(t).HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.Hash, uint32(1071607917); got != want {
		t.Errorf("HashKV() = %d, want %d, as ever", got, want)
	}
}
