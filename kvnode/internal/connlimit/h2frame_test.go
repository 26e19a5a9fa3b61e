package connlimit

import (
	"slices"
	"testing"
)

// raw returns a frame with n bytes of payload.
func raw(kind, flags byte, stream uint32, n int) []byte {
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)}
	return append(b, make([]byte, n)...)
}

// The scanner finds the same frames however a connection is cut into pieces.
func TestFramesInAnyPieces(t *testing.T) {
	var all []byte
	want := []frame{
		{kind: 0x4, length: 36},
		{kind: frameHeaders, flags: 5, length: 70, stream: 1},
		{kind: frameReset, length: 4, stream: 1},
		{kind: frameData, length: 0, stream: 3},
		{kind: frameData, length: 70_000, stream: 1<<31 - 1},
		{kind: 0x6, flags: 1, length: 8},
	}
	for _, f := range want {
		all = append(all, raw(f.kind, f.flags, f.stream, f.length)...)
	}
	all[len(all)-17+5] |= 0x80 // a reserved bit
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

// FuzzFramesInAnyPieces finds the same frames in any bytes, in pieces of any size.
func FuzzFramesInAnyPieces(f *testing.F) {
	f.Add(append(raw(frameReset, 0, 1, 4), raw(0x6, 0, 0, 8)...), byte(99))
	f.Add(append(raw(0x4, 0, 0, 0), raw(frameData, flagEndStream, 3, 5)...), byte(13))
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
