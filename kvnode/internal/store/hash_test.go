package store_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// What etcd 3.7 answers where there is nothing to hash, and at the edges.
func TestHashOfNothing(t *testing.T) {
	const nothing = 1084519789 // CRC-32C of "key"
	r := history(t)
	if h, err := r.HashKV(-1); err != nil || h.Hash != nothing || h.HashRevision != -1 {
		t.Errorf("HashKV(-1) = %+v, %v, want the hash of nothing, %d", h, err, nothing)
	}
	if h, err := r.HashKV(1); err != nil || h.Hash != nothing || h.HashRevision != 1 {
		t.Errorf("HashKV(1) = %+v, %v, want the hash of nothing, %d", h, err, nothing)
	}
	if h, err := r.HashKV(0); err != nil || h.Hash == nothing || h.HashRevision != h.Revision {
		t.Errorf("HashKV(0) = %+v, %v, want the newest and something", h, err)
	}
	if _, err := r.HashKV(r.Revision() + 1); !errors.Is(err, rpctypes.ErrGRPCFutureRev) {
		t.Errorf("HashKV(the future) = %v, want %v", err, rpctypes.ErrGRPCFutureRev)
	}
}

// Members of all versions hash alike, or those that are upgraded are said to be
// corrupt: whoever has to change this gives members a way to say so first.
func TestHashIsThatOfAllVersions(t *testing.T) {
	h, err := history(t).HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.Hash, uint32(1071607917); got != want {
		t.Errorf("HashKV() = %d, want %d, as ever", got, want)
	}
}
