package vdso

import "testing"

// What lies outside is remembered: loops end by it, and nothing that was read is
// believed.
func TestAReadOutsideIsRemembered(t *testing.T) {
	for off, bad := range map[uint64]bool{0: false, 8: false, 9: true, 16: true, 1 << 63: true, 1<<64 - 1: true} {
		v := view{data: make([]byte, 16)}
		if v.u64(off); v.bad != bad {
			t.Errorf("8 bytes at %d of 16 are outside: %v, want %v", off, v.bad, bad)
		}
	}
}

// A string ends within the image.
func TestHolds(t *testing.T) {
	for image, holds := range map[string]bool{"abc\x00": true, "abc": false, "abcd\x00": false, "ab\x00": false, "": false, "abd\x00": false} {
		if v := (view{data: []byte(image)}); v.holds(0, "abc") != holds {
			t.Errorf("%q holds abc: %v, want %v", image, !holds, holds)
		}
	}
}
