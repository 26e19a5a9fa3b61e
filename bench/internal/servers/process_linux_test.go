package servers

import (
	"os"
	"syscall"
	"testing"
)

// A mapping that is touched is resident memory.
func TestOwnMemoryGrowsWithWhatIsTouched(t *testing.T) {
	before, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	after, err := MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Munmap(b); err != nil {
		t.Fatal(err)
	}
	// The collector may have given something back meanwhile.
	if grown := after - before; grown < size/2 {
		t.Errorf("%d bytes that are touched make %d bytes of resident memory", size, grown)
	}
	if _, err := CPUOf(os.Getpid()); err != nil {
		t.Error(err)
	}
}
