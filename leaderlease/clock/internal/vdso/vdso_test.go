package vdso

import (
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

var (
	amd64 = sample{machine: elf.EM_X86_64, name: "__vdso_clock_gettime", version: "LINUX_2.6"}
	arm64 = sample{machine: elf.EM_AARCH64, name: "__kernel_clock_gettime", version: "LINUX_2.6.39"}
)

func TestLookup(t *testing.T) {
	options := map[string]func(*sample){
		"as current kernels do":       func(*sample) {},
		"without the old hash":        func(s *sample) { s.noHash = true },
		"without the GNU hash":        func(s *sample) { s.noGNU = true },
		"without versions":            func(s *sample) { s.noVersions = true },
		"linked at a high address":    func(s *sample) { s.base = 0xffffffffff700000 },
		"GNU hash and a high address": func(s *sample) { s.noHash, s.base = true, 0xffffffffff700000 },
	}
	for _, arch := range []sample{amd64, arm64} {
		for name, option := range options {
			t.Run(arch.machine.String()+"/"+name, func(t *testing.T) {
				s := arch
				option(&s)
				image := s.build()
				if size, err := Size(image, s.machine); err != nil || size != imageSize {
					t.Errorf("Size() = %d, %v, want %d", size, err, imageSize)
				}
				off, err := Lookup(image, s.machine, s.name, s.version)
				if err != nil || off != atCode {
					t.Errorf("Lookup() = %#x, %v, want %#x", off, err, atCode)
				}
			})
		}
	}
}

// Each image differs from a good one in one place, and must be refused.
func TestLookupRefuses(t *testing.T) {
	good := amd64.build()
	cases := []struct {
		name   string
		image  []byte
		symbol string
	}{
		{"empty", nil, amd64.name},
		{"shorter than a header", good[:ehdrSize-1], amd64.name},
		{"cut off after the program headers", good[:atDynamic], amd64.name},
		{"other magic", poke(good, 0, 0), amd64.name},
		{"32 bits", poke(good, 0, 0x0101464c457f), amd64.name},
		{"other machine", arm64.build(), amd64.name},
		{"program headers beyond the end", poke(good, 32, imageSize), amd64.name},
		{"program headers at the end of the address space", poke(good, 32, math.MaxUint64-8), amd64.name},
		{"segment not executable", poke(good, atPhdrs, 1), amd64.name},
		{"segment of 2^40 bytes", poke(good, atPhdrs+32, 1<<40), amd64.name},
		{"dynamic table beyond the end", poke(good, atPhdrs+phdrSize+8, imageSize), amd64.name},
		{"no string table", poke(good, atDynamic, 0), amd64.name},
		{"symbol table beyond the end", poke(good, atDynamic+dynSize+8, imageSize), amd64.name},
		{"2^32-1 symbols", poke(good, 0x400, math.MaxUint64), amd64.name},
		{"function beyond the segment", poke(good, 0x300+3*symSize+8, imageSize), amd64.name},
		{"function undefined", poke(good, 0x300+3*symSize, 0), amd64.name},
		{"other name", good, "__vdso_clock_getres"},
		{"a name that ours begins with", good, "__vdso_clock"},
		{"another name as long", good, "__vdso_clock_gettimX"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if off, err := Lookup(tc.image, amd64.machine, tc.symbol, amd64.version); err == nil {
				t.Errorf("Lookup() = %#x, want an error", off)
			}
		})
	}
	for _, version := range []string{"LINUX_9", "LINUX_2.7"} {
		if off, err := Lookup(good, amd64.machine, amd64.name, version); err == nil {
			t.Errorf("Lookup(version %s) = %#x, want an error", version, off)
		}
	}
}

// What cannot be mapped is refused by its first page already.
func TestSizeRefuses(t *testing.T) {
	good := amd64.build()
	for name, image := range map[string][]byte{
		"a segment that ends beyond the bound": poke(good, atPhdrs+8, maxSize),
		"an end beyond the end of numbers":     poke(poke(good, atPhdrs+8, 0x1000), atPhdrs+32, math.MaxUint64-0x8ff),
		"a beginning at the end of numbers":    poke(poke(good, atPhdrs+8, math.MaxUint64-0xff), atPhdrs+32, 0x800),
		"no executable segment":                poke(good, atPhdrs, 1),
		"no dynamic table":                     poke(good, atPhdrs+phdrSize, 0),
		"an empty dynamic table":               poke(good, atPhdrs+phdrSize+32, dynSize-1),
	} {
		if size, err := Size(image, amd64.machine); err == nil {
			t.Errorf("Size(%s) = %d, want an error", name, size)
		}
	}
}

// Of several executable segments the first one counts.
func TestTheFirstSegmentCounts(t *testing.T) {
	const atTable = 0x580
	image := amd64.build()
	copy(image[atTable:], image[atPhdrs:atPhdrs+2*phdrSize])
	phdr(image[atTable+2*phdrSize:], elf.PT_LOAD, 0x100, 0x9000, 0x500)
	image = poke(image, 32, atTable)
	image[56] = 3
	if size, err := Size(image, amd64.machine); err != nil || size != imageSize {
		t.Errorf("Size() = %d, %v, want %d", size, err, imageSize)
	}
	if off, err := Lookup(image, amd64.machine, amd64.name, amd64.version); err != nil || off != atCode {
		t.Errorf("Lookup() = %#x, %v, want %#x", off, err, atCode)
	}
}

// The old version's function comes first in the table and must not be taken.
func TestLookupHonoursTheVersion(t *testing.T) {
	off, err := Lookup(amd64.build(), amd64.machine, amd64.name, "OLD")
	if err != nil || off != atCode-0x20 {
		t.Errorf("Lookup(version OLD) = %#x, %v, want %#x", off, err, atCode-0x20)
	}
}

// FuzzParseVDSO defends: whatever the bytes, the parser ends, does not panic,
// and never gives an offset outside the image.
func FuzzParseVDSO(f *testing.F) {
	for _, arch := range []sample{amd64, arm64} {
		f.Add(arch.build())
		arch.noHash = true
		f.Add(arch.build())
	}
	f.Fuzz(func(t *testing.T, image []byte) {
		for _, arch := range []sample{amd64, arm64} {
			if size, err := Size(image, arch.machine); err == nil && (size <= 0 || size > 2*maxSize) {
				t.Errorf("Size() = %d, want 1 to %d", size, 2*maxSize)
			}
			off, err := Lookup(image, arch.machine, arch.name, arch.version)
			if err == nil && off >= uint64(len(image)) {
				t.Errorf("Lookup() = %#x, want below %#x", off, len(image))
			}
		}
	})
}

// What lies outside is remembered: loops end by it, and nothing that was read is
// believed.
func TestAReadOutsideIsRemembered(t *testing.T) {
	for off, bad := range map[uint64]bool{0: false, 8: false, 9: true, 16: true, 1 << 63: true, 1<<64 - 1: true} {
		v := view{data: make([]byte, 16)}
		if v.u64(off); v.bad != bad {
			t.Errorf("8 bytes at %d of 16 are outside: %v, want %v", off, v.bad, bad)
		}
	}
}

// A string ends within the image.
func TestHolds(t *testing.T) {
	for image, holds := range map[string]bool{"abc\x00": true, "abc": false, "abcd\x00": false, "ab\x00": false, "": false, "abd\x00": false} {
		if v := (view{data: []byte(image)}); v.holds(0, "abc") != holds {
			t.Errorf("%q holds abc: %v, want %v", image, !holds, holds)
		}
	}
}

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
	// One bucket. Its chain of symbols 1 to 3 ends with the odd value.
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
