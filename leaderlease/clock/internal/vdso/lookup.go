package vdso

import (
	"debug/elf"
	"fmt"
)

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
	// A symbol takes symSize bytes, so a larger count is a lie that would only
	// cost time.
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
