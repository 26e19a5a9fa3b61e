package store

import (
	"bytes"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Members of all versions read what this one saves, and hash what they read.
func TestARecordHasTheBytesOfItsMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		data := rapid.SliceOfN(rapid.Byte(), 0, 200)
		v := &Version{
			of: newChain(data.Draw(t, "key")), mod: number.Draw(t, "mod"), create: number.Draw(t, "create"),
			number: number.Draw(t, "version"), lease: number.Draw(t, "TTL lease"),
		}
		v.setValue(data.Draw(t, "value"))
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(v.Message())
		if err != nil {
			t.Fatal(err)
		}
		if got := appendMessage(nil, v); !bytes.Equal(got, want) {
			t.Fatalf("appendMessage(%v) = %x, want %x", v, got, want)
		}
	})
}

// A version has a cache line of its own, and half of what the message took.
func TestAVersionIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Version{}); size > 64 {
		t.Errorf("a version takes %d bytes, want 64", size)
	}
}

func TestNilAnswersLikeAnAbsentMessage(t *testing.T) {
	var v *Version
	if v.GetKey() != nil || v.GetValue() != nil || v.GetModRevision()|v.GetCreateRevision()|v.GetVersion()|v.GetTTLLease() != 0 || v.Message() != nil {
		t.Errorf("nil answers %v", v)
	}
}

// A chain has the key beside it in a cache line, which is what a look-up waits for.
func TestAChainIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(chain{}); size > 32 {
		t.Errorf("a chain takes %d bytes, want 32 and room for a key of 32", size)
	}
}
