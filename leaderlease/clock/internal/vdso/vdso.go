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

// view reads an image. A read outside the image yields zero and sets bad, so a
// parser may check bad once after several reads.
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
// runs out of the image does not match, and does not set bad.
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

// verMask takes the hidden bit off a symbol's version index.
const verMask = 0x7fff

// maxVersions bounds a list that might point back at itself. Kernels define two.
const maxVersions = 64

// tables are the offsets that the dynamic table gives; zero means absent.
type tables struct {
	strings, symbols, hash, gnuHash, versym, verdef uint64
}

// Lookup returns the offset in image of the function called name. If the image
// has symbol versions, the function must have the given one: name and version
// together are the kernel's promise of what the function does.
func Lookup(image []byte, machine elf.Machine, name, version string) (uint64, error) {
	v := &view{data: image}
	s, err := parseSegments(v, machine)
	if err != nil {
		return 0, err
	}
	t := parseDynamic(v, s)
	if t.strings == 0 || t.symbols == 0 || t.hash|t.gnuHash == 0 {
		return 0, fmt.Errorf("vdso: no string, symbol or hash table (at %d, %d, %d and %d)", t.strings, t.symbols, t.hash, t.gnuHash)
	}
	want, err := t.version(v, version)
	if err != nil {
		return 0, err
	}
	n := t.count(v)
	// A symbol takes symSize bytes, so a larger count is false.
	if limit := uint64(len(image)) / symSize; v.bad || n > limit {
		return 0, fmt.Errorf("vdso: %d symbols (want at most %d), tables inside the image: %t", n, limit, !v.bad)
	}
	for i := range n {
		off, ok := t.symbol(v, i, name, want, s.bias)
		if ok && !v.bad && off < s.size && off < uint64(len(image)) {
			return off, nil
		}
	}
	return 0, fmt.Errorf("vdso: no function %s, version %s, among %d symbols", name, version, n)
}

func parseDynamic(v *view, s segments) tables {
	var t tables
	for i := range s.entries {
		tag, off := elf.DynTag(v.u64(s.dynamic+i*dynSize)), v.u64(s.dynamic+i*dynSize+8)+s.bias
		switch tag {
		case elf.DT_STRTAB:
			t.strings = off
		case elf.DT_SYMTAB:
			t.symbols = off
		case elf.DT_HASH:
			t.hash = off
		case elf.DT_GNU_HASH:
			t.gnuHash = off
		case elf.DT_VERSYM:
			t.versym = off
		case elf.DT_VERDEF:
			t.verdef = off
		}
		if tag == elf.DT_NULL || v.bad {
			break
		}
	}
	return t
}

// version returns the index of the named version, or zero if the image has no
// versions and any symbol will do.
func (t tables) version(v *view, name string) (uint16, error) {
	if t.versym == 0 || t.verdef == 0 {
		return 0, nil
	}
	off := t.verdef
	for range maxVersions {
		flags, index := v.u16(off+2), v.u16(off+4)&verMask
		aux, next := uint64(v.u32(off+12)), uint64(v.u32(off+16))
		if v.bad {
			break
		}
		// The base entry names the file, not a version.
		if elf.DynamicVersionFlag(flags)&elf.VER_FLG_BASE == 0 && v.holds(t.strings+uint64(v.u32(off+aux)), name) {
			return index, nil
		}
		if next == 0 {
			break
		}
		off += next
	}
	return 0, fmt.Errorf("vdso: no version %s", name)
}

// count returns the number of dynamic symbols. There are about a dozen, so the
// hash tables serve only to count them.
func (t tables) count(v *view) uint64 {
	if t.hash != 0 {
		return uint64(v.u32(t.hash + 4))
	}
	buckets, first, bloom := uint64(v.u32(t.gnuHash)), uint64(v.u32(t.gnuHash+4)), uint64(v.u32(t.gnuHash+8))
	bucket := t.gnuHash + 16 + 8*bloom
	chain := bucket + 4*buckets
	var last uint64
	for i := uint64(0); i < buckets && !v.bad; i++ {
		last = max(last, uint64(v.u32(bucket+4*i)))
	}
	if last < first || v.bad {
		return first
	}
	// The low bit marks the end of a chain; the last chain ends the table.
	for !v.bad && v.u32(chain+4*(last-first))&1 == 0 {
		last++
	}
	return last + 1
}

// symbol returns the offset of symbol i, if it is the wanted function.
func (t tables) symbol(v *view, i uint64, name string, version uint16, bias uint64) (uint64, bool) {
	off := t.symbols + i*symSize
	info, section := v.u8(off+4), elf.SectionIndex(v.u16(off+6))
	kind, bind := elf.ST_TYPE(info), elf.ST_BIND(info)
	switch {
	case section == elf.SHN_UNDEF:
		return 0, false
	case kind != elf.STT_FUNC && kind != elf.STT_NOTYPE:
		return 0, false
	case bind != elf.STB_GLOBAL && bind != elf.STB_WEAK:
		return 0, false
	case !v.holds(t.strings+uint64(v.u32(off)), name):
		return 0, false
	case version != 0 && v.u16(t.versym+2*i)&verMask != version:
		return 0, false
	default:
		return v.u64(off+8) + bias, true
	}
}
