package clock

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout of struct vmclock_abi, from the uapi header linux/vmclock-abi.h.
// The ABI is little-endian.
const (
	vmclockMagic   = 0x4b4c4356 // "VCLK"
	vmclockVersion = 1

	offMagic      = 0  // u32
	offSize       = 4  // u32, bytes that hold the structure
	offVersion    = 8  // u16
	offDisruption = 16 // u64
	vmclockHeader = 32 // up to and including the flags; the kernel needs as much
)

// VMClock is the page through which a hypervisor tells a Linux guest about its
// clock. It stays mapped for as long as the VMClock is reachable.
type VMClock struct {
	marker *atomic.Uint64 // immutable; in the mapped page, not Go memory
}

// OpenVMClock maps the vmclock device at path read-only. The error matches
// fs.ErrNotExist if there is no such file.
func OpenVMClock(path string) (*VMClock, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open vmclock: %w", err)
	}
	defer func() { _ = f.Close() }() // the mapping outlives it
	// A device reports no size. A file must hold the header: touching a page
	// beyond its end would kill the process.
	if fi, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("stat vmclock: %w", err)
	} else if fi.Mode().IsRegular() && fi.Size() < vmclockHeader {
		return nil, fmt.Errorf("vmclock %s: file of %d bytes is shorter than the header of %d", path, fi.Size(), vmclockHeader)
	}
	// The driver insists on exactly one page.
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map vmclock %s: %w", path, err)
	}
	if err := checkVMClock(page); err != nil {
		return nil, fmt.Errorf("vmclock %s: %w", path, errors.Join(err, unix.Munmap(page)))
	}
	// A page is aligned, so the marker is as well.
	v := &VMClock{marker: (*atomic.Uint64)(unsafe.Pointer(&page[offDisruption]))}
	runtime.AddCleanup(v, func(page []byte) { _ = unix.Munmap(page) }, page)
	return v, nil
}

// checkVMClock looks at the fields that never change.
func checkVMClock(page []byte) error {
	le := binary.LittleEndian
	magic, size, version := le.Uint32(page[offMagic:]), le.Uint32(page[offSize:]), le.Uint16(page[offVersion:])
	switch {
	case magic != vmclockMagic:
		return fmt.Errorf("magic %#08x, want %#08x", magic, vmclockMagic)
	case version != vmclockVersion:
		return fmt.Errorf("version %d, want %d", version, vmclockVersion)
	case size < vmclockHeader:
		return fmt.Errorf("structure of %d bytes, want at least %d", size, vmclockHeader)
	default:
		return nil
	}
}

// Disruptions returns the current disruption marker with a single atomic load.
// Only whether it changed has a meaning.
func (v *VMClock) Disruptions() uint64 {
	// The marker is one aligned word and changes once per disruption, so the
	// page's sequence count adds nothing.
	n := v.marker.Load()
	runtime.KeepAlive(v) // or the page might be unmapped under the load
	return n
}
