// Package vdso finds a function in the shared object that the Linux kernel
// maps into every process.
//
// It works on bytes and trusts none of them: every access is checked against
// the image, every loop is bounded by its size, and arbitrary input yields an
// error, never a panic (FuzzParseVDSO). Only what the kernel documents as the
// vDSO's ABI is used: the dynamic symbol table, never section headers.
package vdso

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Sizes of the 64-bit ELF structures, from the ELF specification.
const (
	ehdrSize = 64
	phdrSize = 56
	dynSize  = 16
	symSize  = elf.Sym64Size
)

// maxSize bounds the image a program header may claim. Real ones have two to
// five pages.
const maxSize = 1 << 20

// view reads an image. A read outside it yields zero and is remembered, so
// that a parser may run straight on and ask once whether it can be believed.
type view struct {
	data []byte
	bad  bool
}

func (v *view) at(off, n uint64) []byte {
	size := uint64(len(v.data))
	if off > size || n > size-off {
		v.bad = true
		return make([]byte, n)
	}
	return v.data[off : off+n]
}

func (v *view) u8(off uint64) uint8   { return v.at(off, 1)[0] }
func (v *view) u16(off uint64) uint16 { return binary.LittleEndian.Uint16(v.at(off, 2)) }
func (v *view) u32(off uint64) uint32 { return binary.LittleEndian.Uint32(v.at(off, 4)) }
func (v *view) u64(off uint64) uint64 { return binary.LittleEndian.Uint64(v.at(off, 8)) }

// holds reports whether the zero-terminated string at off is s. A string that
// runs out of the image is no string, but does not spoil the rest.
func (v *view) holds(off uint64, s string) bool {
	size, n := uint64(len(v.data)), uint64(len(s))
	if off >= size || n >= size-off {
		return false
	}
	return string(v.data[off:off+n]) == s && v.data[off+n] == 0
}

// segments is what the program headers say.
type segments struct {
	// bias turns an address of the image into an offset: offset = address +
	// bias, modulo 2^64. Old kernels linked the vDSO at a high address.
	bias uint64
	// size is the number of bytes that the loadable segment maps.
	size uint64
	// dynamic is the offset of the dynamic table, entries its length.
	dynamic, entries uint64
}

// parseSegments reads the ELF and program headers. It needs the first page only.
func parseSegments(v *view, machine elf.Machine) (segments, error) {
	var s segments
	if len(v.data) < ehdrSize {
		return s, fmt.Errorf("vdso: image of %d bytes is shorter than an ELF header of %d", len(v.data), ehdrSize)
	}
	if magic := string(v.data[:len(elf.ELFMAG)]); magic != elf.ELFMAG {
		return s, fmt.Errorf("vdso: magic %q, want %q", magic, elf.ELFMAG)
	}
	if class, order := elf.Class(v.u8(elf.EI_CLASS)), elf.Data(v.u8(elf.EI_DATA)); class != elf.ELFCLASS64 || order != elf.ELFDATA2LSB {
		return s, fmt.Errorf("vdso: class %d and byte order %d, want %d and %d", class, order, elf.ELFCLASS64, elf.ELFDATA2LSB)
	}
	if got := elf.Machine(v.u16(18)); got != machine {
		return s, fmt.Errorf("vdso: machine %d, want %d", got, machine)
	}
	table, size, n := v.u64(32), v.u16(54), v.u16(56)
	if size != phdrSize {
		return s, fmt.Errorf("vdso: program header of %d bytes, want %d", size, phdrSize)
	}
	for i := range uint64(n) {
		s.add(v, table+i*phdrSize)
		if v.bad {
			return s, fmt.Errorf("vdso: program header %d of %d at offset %d is outside the image of %d bytes", i, n, table, len(v.data))
		}
	}
	if s.size == 0 || s.size > maxSize || s.entries == 0 {
		return s, fmt.Errorf("vdso: executable segment of %d bytes (want 1 to %d), dynamic table of %d entries (want at least 1)", s.size, maxSize, s.entries)
	}
	return s, nil
}

// add takes one program header into account. A vDSO has one loadable segment;
// of several, the first executable one counts.
func (s *segments) add(v *view, off uint64) {
	offset, addr, filesz := v.u64(off+8), v.u64(off+16), v.u64(off+32)
	switch elf.ProgType(v.u32(off)) {
	case elf.PT_LOAD:
		if s.size == 0 && elf.ProgFlag(v.u32(off+4))&elf.PF_X != 0 && filesz <= maxSize && offset <= maxSize {
			s.bias = offset - addr
			s.size = offset + filesz
		}
	case elf.PT_DYNAMIC:
		s.dynamic, s.entries = offset, filesz/dynSize
	}
}

// Size returns how many bytes of memory the image that starts with page
// occupies. The first 4096 bytes are enough.
func Size(page []byte, machine elf.Machine) (int, error) {
	s, err := parseSegments(&view{data: page}, machine)
	return int(s.size), err
}
