package floodgate

import (
	"slices"
	"testing"
)

// However a connection is cut into pieces, its frames are the same.
func TestFramesAreFoundInAnyPieces(t *testing.T) {
	var all []byte
	want := []frame{
		{kind: frameSettings, length: 36},
		{kind: frameHeaders, flags: 5, length: 70, stream: 1},
		{kind: frameReset, length: 4, stream: 1, code: codeCancel},
		{kind: frameData, length: 0, stream: 3},
		{kind: frameData, length: 70_000, stream: 1<<31 - 1},
		{kind: frameReset, length: 2, stream: 5}, // no code: the connection ends by it
		{kind: frameReset, length: 7, stream: 5, code: 1},
		{kind: framePing, flags: 1, length: 8},
	}
	for _, f := range want {
		var code []byte
		if f.kind == frameReset {
			code = []byte{0, 0, 0, byte(f.code)}[:min(4, f.length)]
		}
		all = append(all, raw(f.kind, f.flags, f.stream, f.length, code...)...)
	}
	all[len(all)-17+5] |= 0x80 // a reserved bit, to be ignored
	for size := 1; size < 30; size++ {
		s := scanner{}
		var got []frame
		for piece := range slices.Chunk(all, size) {
			for f, rest, ok := s.next(piece); ok; f, rest, ok = s.next(rest) {
				got = append(got, f)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %+v, want %+v", size, got, want)
		}
	}
}

// FuzzFramesAreFoundInAnyPieces: whatever a client sends, in whatever pieces, the
// frames are the same, and what is skipped never goes below nothing.
func FuzzFramesAreFoundInAnyPieces(f *testing.F) {
	f.Add(append(raw(frameReset, 0, 1, 4, 0, 0, 0, codeCancel), raw(framePing, 0, 0, 8)...), byte(99))
	f.Add(raw(frameReset, 0, 1, 2), byte(9))
	f.Add(append(raw(frameSettings, 0, 0, 0), raw(frameData, flagEndStream, 3, 5)...), byte(13))
	f.Fuzz(func(t *testing.T, all []byte, size byte) {
		find := func(size int) (got []frame) {
			s := scanner{}
			for piece := range slices.Chunk(all, size) {
				for f, rest, ok := s.next(piece); ok; f, rest, ok = s.next(rest) {
					got = append(got, f)
				}
				if s.skip < 0 {
					t.Fatalf("in pieces of %d: %d bytes to skip", size, s.skip)
				}
			}
			return got
		}
		if len(all) == 0 {
			return
		}
		want, got := find(1), find(int(size)+1)
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %+v, byte by byte %+v", int(size)+1, got, want)
		}
	})
}
