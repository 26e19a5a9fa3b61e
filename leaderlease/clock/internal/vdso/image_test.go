package vdso

import (
	"debug/elf"
	"encoding/binary"
	"slices"
)

// sample describes a small vDSO to build. The zero value of each option is what
// current kernels do.
type sample struct {
	machine       elf.Machine
	name, version string
	base          uint64 // the address it is linked at
	noHash, noGNU bool
	noVersions    bool
}

// The offsets and values that tests look at or break.
const (
	atPhdrs   = ehdrSize
	atDynamic = atPhdrs + 2*phdrSize
	atCode    = 0x600
	imageSize = 0x700
)

// build lays out an image with three symbols after the null one: a function of
// the wrong version, a data object and a function, all called s.name.
func (s sample) build() []byte {
	b := make([]byte, imageSize)
	le := binary.LittleEndian
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS], b[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	le.PutUint16(b[18:], uint16(s.machine))
	le.PutUint64(b[32:], atPhdrs)
	le.PutUint16(b[54:], phdrSize)
	le.PutUint16(b[56:], 2)
	phdr(b[atPhdrs:], elf.PT_LOAD, 0, s.base, imageSize)
	phdr(b[atPhdrs+phdrSize:], elf.PT_DYNAMIC, atDynamic, s.base+atDynamic, 8*dynSize)

	const atStrings, atSymbols, atHash, atGNU, atVersym, atVerdef = 0x200, 0x300, 0x400, 0x440, 0x500, 0x520
	names := "\x00linux-vdso.so.1\x00OLD\x00" + s.version + "\x00" + s.name + "\x00"
	copy(b[atStrings:], names)
	version, name := uint32(21), uint32(21+len(s.version)+1)

	s.symbols(b[atSymbols:], name)

	table(b[atHash:], 1, 4)
	// One bucket, whose chain of symbols 1 to 3 ends with the odd value.
	table(b[atGNU:], 1, 1, 1, 0, 0, 0, 1, 2, 4, 7)
	for i, index := range []uint16{0, 2, 3, 3} {
		le.PutUint16(b[atVersym+2*i:], index)
	}
	verdef(b[atVerdef:], uint16(elf.VER_FLG_BASE), 1, version-4-16, true)
	verdef(b[atVerdef+28:], 0, 2, version-4, true)
	verdef(b[atVerdef+56:], 0, 3, version, false)

	entries := []struct {
		tag  elf.DynTag
		addr uint64
		skip bool
	}{
		{elf.DT_STRTAB, atStrings, false},
		{elf.DT_SYMTAB, atSymbols, false},
		{elf.DT_HASH, atHash, s.noHash},
		{elf.DT_GNU_HASH, atGNU, s.noGNU},
		{elf.DT_VERSYM, atVersym, s.noVersions},
		{elf.DT_VERDEF, atVerdef, s.noVersions},
	}
	off := atDynamic
	for _, e := range entries {
		if e.skip {
			continue
		}
		le.PutUint64(b[off:], uint64(e.tag))
		le.PutUint64(b[off+8:], s.base+e.addr)
		off += dynSize
	}
	return b
}

// symbols writes three symbols of one name, of which the last is right.
func (s sample) symbols(b []byte, name uint32) {
	le := binary.LittleEndian
	symbol := func(i int, kind elf.SymType, value uint64) {
		sym := b[i*symSize:]
		le.PutUint32(sym, name)
		sym[4] = elf.ST_INFO(elf.STB_GLOBAL, kind)
		le.PutUint16(sym[6:], 1)
		le.PutUint64(sym[8:], s.base+value)
	}
	symbol(1, elf.STT_FUNC, atCode-0x20)
	symbol(2, elf.STT_OBJECT, atCode-0x10)
	symbol(3, elf.STT_FUNC, atCode)
	if s.noVersions {
		symbol(1, elf.STT_OBJECT, atCode-0x20)
	}
}

func phdr(b []byte, kind elf.ProgType, off, addr, size uint64) {
	le := binary.LittleEndian
	le.PutUint32(b, uint32(kind))
	le.PutUint32(b[4:], uint32(elf.PF_R|elf.PF_X))
	le.PutUint64(b[8:], off)
	le.PutUint64(b[16:], addr)
	le.PutUint64(b[32:], size)
	le.PutUint64(b[40:], size)
}

func table(b []byte, words ...uint32) {
	for i, w := range words {
		binary.LittleEndian.PutUint32(b[4*i:], w)
	}
}

// verdef writes one version of 20 bytes with its name of 8 right behind.
func verdef(b []byte, flags, index uint16, name uint32, more bool) {
	le := binary.LittleEndian
	le.PutUint16(b, 1)
	le.PutUint16(b[2:], flags)
	le.PutUint16(b[4:], index)
	le.PutUint16(b[6:], 1)
	le.PutUint32(b[12:], 20)
	if more {
		le.PutUint32(b[16:], 28)
	}
	le.PutUint32(b[20:], name)
}

// poke returns a copy of image with word written at off.
func poke(image []byte, off int, word uint64) []byte {
	b := slices.Clone(image)
	binary.LittleEndian.PutUint64(b[off:], word)
	return b
}
