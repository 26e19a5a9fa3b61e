package gctune

import (
	"os"
	"syscall"
	"unsafe"
)

// untouch returns the pages of memory, which is all zero and stays so, to the system. Go has touched them if
// the allocation reused memory, as in every second start.
func untouch(memory []byte) {
	page := os.Getpagesize()
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))) & (page - 1)
	if end := len(memory) &^ (page - 1); begin+page < end {
		_ = syscall.Madvise(memory[begin:end-page], syscall.MADV_DONTNEED) // on failure the pages stay
	}
}
