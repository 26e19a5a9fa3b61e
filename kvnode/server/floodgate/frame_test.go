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
