//go:build amd64 || arm64

package clock

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel gives is used only if it leaves half of the stack, and reads the
// clock.
func TestUnfitFunctionsAreRefused(t *testing.T) {
	if err := vdsoUsable(); err != nil {
		t.Skip(err)
	}
	p := programs[runtime.GOARCH]
	// The hungry one ends with a result of zero and the return.
	end := map[string]int{"amd64": 3, "arm64": 8}[runtime.GOARCH]
	hungry := slices.Concat(p.hungry[:len(p.hungry)-end], p.syscall)
	for _, c := range []struct {
		name string
		code []byte
		fit  bool
	}{
		{"a system call", p.syscall, true},
		{"a system call behind 3000 bytes of stack", hungry, false},
		{"one that fails", p.fail, false},
		{"one that writes nothing", p.hungry, false},
	} {
		if _, err := vdsoClockOf(code(t, c.code)); (err == nil) != c.fit {
			t.Errorf("vdsoClockOf(%s) = %v, want it taken: %v", c.name, err, c.fit)
		}
	}
}

// The vDSO is found behind other entries, and not where the kernel says that there is none.
func TestImageIn(t *testing.T) {
	needVDSO(t)
	auxv, err := unix.Auxv()
	if err != nil {
		t.Fatal(err)
	}
	const atPageSize = 6
	other := [2]uintptr{atPageSize, 4096}
	if image, err := imageIn(append([][2]uintptr{other}, auxv...)); err != nil || len(image) == 0 {
		t.Errorf("imageIn(the vDSO as second entry) = %d bytes, %v, want it", len(image), err)
	}
	if image, err := imageIn([][2]uintptr{other, {atSysinfoEHDR, 0}}); err == nil {
		t.Errorf("imageIn(no address) = %d bytes, want an error", len(image))
	}
}

// Where an image has no such function nothing is called.
func TestAnImageWithoutTheFunctionIsRefused(t *testing.T) {
	if fn, err := findIn(make([]byte, 4096)); err == nil {
		t.Errorf("findIn(a page of zeroes) = %#x, want an error", fn)
	}
}
