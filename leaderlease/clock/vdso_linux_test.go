//go:build amd64 || arm64

package clock

import (
	"bytes"
	"debug/elf"
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// needVDSO returns this process's clock, or skips where the kernel maps no
// vDSO, as the kernel says and not the code that is to find it. Where it does,
// everything must work.
func needVDSO(t testing.TB) *vdsoClock {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(maps, []byte("[vdso]")) {
		t.Skip("no vDSO")
	}
	c, err := newVDSOClock()
	if err != nil {
		t.Fatalf("newVDSOClock(): %v", err)
	}
	return c
}

func TestSystemUsesTheVDSO(t *testing.T) {
	c := needVDSO(t)
	info := Describe(System())
	if info.Name != c.info.Name && info.Name != c.info.Name+"+vmclock" {
		t.Errorf("System() is %q, want %q", info.Name, c.info.Name)
	}
	if !info.CountsSuspend {
		t.Errorf("System() = %+v, want it to count suspended time", info)
	}
}

// The standard library finds the function by section headers, we by the dynamic
// table; they must agree.
func TestFindVDSOAgreesWithDebugELF(t *testing.T) {
	needVDSO(t)
	image, err := vdsoImage()
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	whole := unsafe.Slice(&image[0], (len(image)+page-1)/page*page)
	f, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		t.Skipf("debug/elf cannot read this vDSO: %v", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == vdsoSymbol })
	if i < 0 {
		t.Fatalf("debug/elf finds no %s", vdsoSymbol)
	}
	fn, err := findVDSO()
	if err != nil {
		t.Fatal(err)
	}
	if got := uint64(fn - uintptr(unsafe.Pointer(&image[0]))); got != symbols[i].Value {
		t.Errorf("findVDSO() = offset %#x, want %#x", got, symbols[i].Value)
	}
}

// code is a function in memory of its own, in place of the kernel's.
func code(t *testing.T, instructions []byte) uintptr {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	copy(mem, instructions)
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		t.Skipf("no executable memory: %v", err)
	}
	return uintptr(unsafe.Pointer(&mem[0]))
}

// programs do what the kernel's function does, fail, or use a known amount of
// stack. They run also where there is no vDSO, as under user-mode emulation.
var programs = map[string]struct{ syscall, fail, hungry []byte }{
	"amd64": {
		syscall: []byte{0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0xc3}, // mov $228,%eax; syscall; ret
		fail:    []byte{0xb8, 0xea, 0xff, 0xff, 0xff, 0xc3},    // mov $-22,%eax; ret
		// push %rax; movq $0,-3000(%rsp); pop %rax; xor %eax,%eax; ret
		hungry: []byte{0x50, 0x48, 0xc7, 0x84, 0x24, 0x48, 0xf4, 0xff, 0xff, 0, 0, 0, 0, 0x58, 0x31, 0xc0, 0xc3},
	},
	"arm64": {
		syscall: []byte{0x28, 0x0e, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0xc0, 0x03, 0x5f, 0xd6}, // mov x8,#113; svc #0; ret
		fail:    []byte{0xa0, 0x02, 0x80, 0x92, 0xc0, 0x03, 0x5f, 0xd6},                   // mov x0,#-22; ret
		// sub x3,sp,#3000; str xzr,[x3]; mov x0,#0; ret
		hungry: []byte{0xe3, 0xe3, 0x2e, 0xd1, 0x7f, 0, 0, 0xf9, 0, 0, 0x80, 0xd2, 0xc0, 0x03, 0x5f, 0xd6},
	},
}

func TestCallReturnsWhatTheFunctionWrote(t *testing.T) {
	if err := vdsoUsable(); err != nil {
		t.Skip(err)
	}
	fn := code(t, programs[runtime.GOARCH].syscall)
	if err := checkReadings(readBoottime, func() int64 { return callVDSO(fn) }); err != nil {
		t.Errorf("checkReadings(system call in place of the vDSO): %v", err)
	}
	if used := probeVDSO(fn); used == 0 || used > 64 {
		t.Errorf("probeVDSO(leaf) = %d bytes, want 1 to 64", used)
	}
}

// A failed reading is zero, wherever a time namespace puts the origin.
func TestFailureIsZero(t *testing.T) {
	if err := vdsoUsable(); err != nil {
		t.Skip(err)
	}
	fn := code(t, programs[runtime.GOARCH].fail)
	if got := callVDSO(fn); got != readFailed {
		t.Errorf("callVDSO(failing) = %d, want %d", got, int64(readFailed))
	}
	const century = 100 * 365 * 24 * int64(time.Hour)
	for _, origin := range []int64{-century, 0, int64(firstReading), century} {
		if got := (&vdsoClock{fn: fn, origin: origin}).Now(); got != 0 {
			t.Errorf("Now() with origin %d = %d, want 0", origin, got)
		}
	}
	if used := probeVDSO(fn); used != 0 {
		t.Errorf("probeVDSO(failing) = %d, want 0", used)
	}
}

func TestProbeSeesTheStackInUse(t *testing.T) {
	if err := vdsoUsable(); err != nil {
		t.Skip(err)
	}
	fn := code(t, programs[runtime.GOARCH].hungry)
	if used := probeVDSO(fn); used < 3000 || used > 3100 {
		t.Errorf("probeVDSO(3000 bytes) = %d, want 3000 to 3100", used)
	} else if used <= vdsoStack/2 {
		t.Errorf("vdsoStack/2 = %d, want this function (%d) refused", vdsoStack/2, used)
	}
}

// The self-check is the guard; these are the clocks it has to catch.
func TestCheckReadingsRefuses(t *testing.T) {
	raw := func() int64 {
		ns, err := readBoottime()
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	start := raw()
	broken := map[string]func() int64{
		"ahead by a millisecond":  func() int64 { return raw() + 1e6 },
		"behind by a millisecond": func() int64 { return raw() - 1e6 },
		"stopped":                 func() int64 { return start },
		"zero":                    func() int64 { return 0 },
		"failed":                  func() int64 { return readFailed },
		"wall time":               func() int64 { return time.Now().UnixNano() },
		"the end of time":         func() int64 { return math.MaxInt64 },
	}
	for name, fast := range broken {
		if err := checkReadings(readBoottime, fast); err == nil {
			t.Errorf("checkReadings(%s) = nil, want an error", name)
		}
	}
	want := errors.New("no clock")
	if err := checkReadings(func() (int64, error) { return 0, want }, raw); !errors.Is(err, want) {
		t.Errorf("checkReadings(failing system call) = %v, want %v", err, want)
	}
}

const namespaceEnv = "LEADERLEASE_CLOCK_IN_TIME_NAMESPACE"

// In a time namespace BOOTTIME and MONOTONIC are a million seconds apart. The
// vDSO must serve the former there as well, from a page of its own.
func TestTimeNamespace(t *testing.T) {
	if os.Getenv(namespaceEnv) != "" {
		checkNamespace(t)
		return
	}
	needVDSO(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip(err)
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(unshare, append([]string{"--time", "--fork", "--boottime", "1000000"}, args...)...)
		cmd.Env = append(os.Environ(), namespaceEnv+"=1")
		return cmd.CombinedOutput()
	}
	if out, err := run("true"); err != nil {
		t.Skipf("no time namespaces here: %v: %s", err, out)
	}
	if out, err := run(os.Args[0], "-test.run=^TestTimeNamespace$", "-test.v"); err != nil {
		t.Errorf("in a time namespace: %v\n%s", err, out)
	}
}

func checkNamespace(t *testing.T) {
	c := needVDSO(t)
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		t.Fatal(err)
	}
	if got := callVDSO(c.fn) - mono.Nano(); got < 999_000*int64(time.Second) {
		t.Errorf("vDSO reading is %v ahead of CLOCK_MONOTONIC, want about 1e6 s", time.Duration(got))
	}
	if now := c.Now(); now < firstReading || now > firstReading.Add(time.Hour) {
		t.Errorf("Now() = %d, want shortly after %d", now, firstReading)
	}
}

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
