package vdso

import (
	"debug/elf"
	"math"
	"testing"
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
