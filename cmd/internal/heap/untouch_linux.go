package heap

import (
	"os"
	"syscall"
	"unsafe"
)

// untouch takes the system's memory from what is all zero, and stays so. Go has touched all
// of what it has just made if a part of that was in use before, as it is in one start of two.
func untouch(room []byte) {
	page := os.Getpagesize()
	begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & (page - 1)
	if end := len(room) &^ (page - 1); begin+page < end {
		_ = syscall.Madvise(room[begin:end-page], syscall.MADV_DONTNEED) // or it stays, as it was
	}
}
