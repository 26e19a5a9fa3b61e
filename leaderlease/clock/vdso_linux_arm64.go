package clock

import (
	"debug/elf"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	vdsoMachine = elf.EM_AARCH64
	vdsoSymbol  = "__kernel_clock_gettime"
	vdsoVersion = "LINUX_2.6.39"
)

// iscgo reports whether runtime/cgo is linked in. The runtime keeps this name
// for packages that need it (purego is one).
//
//go:linkname iscgo runtime.iscgo
var iscgo bool

// saveG makes callVDSO leave g where the signal handler looks for it. It is set
// before the first call and immutable from then on.
var saveG bool

// signalStack returns the low end of this thread's signal stack as the runtime
// records it: g.m.gsignal.stack.lo.
func signalStack() uintptr

// vdsoUsable reports whether the runtime copes with a signal that arrives
// inside the vDSO. C code may use R28, so the handler does not look for g
// there. With cgo it takes g from thread-local storage, which is always right.
// Without, it takes g from the first word of the signal stack, where the
// runtime's own clock readings put it; with no g there, the process dies of
// "bad g in signal handler". So callVDSO must put g there too, and it finds the
// place only where the runtime's layout is known and has been checked.
func vdsoUsable() error {
	if iscgo {
		return nil
	}
	if !layoutKnown {
		return errors.New("without cgo, this Go version's signal handling is not known")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var alt struct {
		sp    uintptr
		flags int32
		size  uintptr
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SIGALTSTACK, 0, uintptr(unsafe.Pointer(&alt)), 0); errno != 0 {
		return fmt.Errorf("read signal stack: %w", errno)
	}
	if lo := signalStack(); lo == 0 || lo != alt.sp {
		return fmt.Errorf("the runtime's signal stack is at %#x, the kernel's at %#x", lo, alt.sp)
	}
	saveG = true
	return nil
}
