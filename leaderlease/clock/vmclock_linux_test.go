package clock

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// vmclockPage returns the header of a device, with change applied to it.
func vmclockPage(change func([]byte)) []byte {
	b := make([]byte, 4096)
	le := binary.LittleEndian
	le.PutUint32(b[offMagic:], vmclockMagic)
	le.PutUint32(b[offSize:], 4096)
	le.PutUint16(b[offVersion:], vmclockVersion)
	le.PutUint64(b[offDisruption:], 7)
	if change != nil {
		change(b)
	}
	return b
}

func writeFile(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmclock0")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// disrupt does what a hypervisor does to the page.
func disrupt(t *testing.T, path string, marker uint64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, marker), offDisruption); err != nil {
		t.Fatal(err)
	}
}

func TestDisruptionsFollowTheDevice(t *testing.T) {
	path := writeFile(t, vmclockPage(nil))
	base := newBoottimeClock()
	c := newSystem(base, path)
	d, ok := c.(Disruptable)
	if !ok {
		t.Fatalf("newSystem() = %T, want a Disruptable", c)
	}
	for _, want := range []uint64{7, 8, 1 << 63} {
		disrupt(t, path, want)
		if got := d.Disruptions(); got != want {
			t.Errorf("Disruptions() = %d, want %d", got, want)
		}
	}
	if before, now, after := base.Now(), c.Now(), base.Now(); now < before || now > after {
		t.Errorf("Now() = %d, want a reading of the clock beneath, %d to %d", now, before, after)
	}
	if got, want := Describe(c).Name, Describe(base).Name+"+vmclock"; got != want {
		t.Errorf("Describe().Name = %q, want %q", got, want)
	}
}

func TestVMClockRefuses(t *testing.T) {
	le := binary.LittleEndian
	cases := []struct {
		name, want string
		page       []byte
	}{
		{"an empty file", "0 bytes", nil},
		{"a file one byte short", "31 bytes", vmclockPage(nil)[:vmclockHeader-1]},
		{"a foreign magic", "0xdeadbeef", vmclockPage(func(b []byte) { le.PutUint32(b[offMagic:], 0xdeadbeef) })},
		{"version 2", "version 2", vmclockPage(func(b []byte) { le.PutUint16(b[offVersion:], 2) })},
		{"version 0", "version 0", vmclockPage(func(b []byte) { le.PutUint16(b[offVersion:], 0) })},
		{"a structure without flags", "24 bytes", vmclockPage(func(b []byte) { le.PutUint32(b[offSize:], 24) })},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			path := writeFile(t, tc.page)
			base := newRuntimeClock()
			c := newSystem(base, path)
			if c != Clock(base) {
				t.Errorf("newSystem() = %T, want the clock itself", c)
			}
			// The text is the product here: an operator has to act on it.
			if got := base.info.Warning; !strings.Contains(got, tc.want) || !strings.Contains(got, path) {
				t.Errorf("warning = %q, want it to name %q and the path", got, tc.want)
			}
		})
	}
	if _, err := OpenVMClock(writeFile(t, vmclockPage(nil)[:vmclockHeader])); err != nil {
		t.Errorf("OpenVMClock(header only): %v", err)
	}
}

// The page must stay while it can be read, and go when it cannot.
func TestVMClockIsUnmapped(t *testing.T) {
	path := writeFile(t, vmclockPage(nil))
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skipf("no memory map to look at: %v", err)
		}
		return strings.Contains(string(maps), path)
	}
	v, err := OpenVMClock(path)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if !mapped() || v.Disruptions() != 7 {
		t.Fatalf("page mapped: %t, Disruptions() = %d, want true and 7", mapped(), v.Disruptions())
	}
	// Cleanups run on a goroutine of the runtime's, which nothing can wait for.
	for range 1000 {
		runtime.GC()
		if !mapped() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("page is still mapped after the VMClock became unreachable")
}

func BenchmarkDisruptions(b *testing.B) {
	path := filepath.Join(b.TempDir(), "vmclock0")
	if err := os.WriteFile(path, vmclockPage(nil), 0o600); err != nil {
		b.Fatal(err)
	}
	v, err := OpenVMClock(path)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		v.Disruptions()
	}
}
