package etcdapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// A hash is that of the member that was asked for: whoever else answers at its
// address says nothing of it.
func TestWhoseHashItIs(t *testing.T) {
	p := startPair(t)
	p.leader.put(t, "key", "value")
	at := store.Member{ID: testMember, Name: "b", ClientURLs: []string{"http://gone:2379", "http://leader:2379"}}
	api := p.follower.api
	want, err := p.leader.store.HashKV(0)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := api.hashOf(t.Context(), &at, 0); err != nil || h != want {
		t.Errorf("hashOf() = %+v, %v, want %+v", h, err, want)
	}
	if h, err := api.hashOf(t.Context(), &at, 1); err != nil || h.HashRevision != 1 || h.Hash == want.Hash {
		t.Errorf("hashOf(revision 1) = %+v, %v, want another", h, err)
	}
	other := at
	other.ID = otherMember
	if h, err := api.hashOf(t.Context(), &other, 0); err == nil || !strings.Contains(err.Error(), "is member a1, not b2") {
		t.Errorf("hashOf() = %+v, %v where another member answers, want it refused", h, err)
	}
	p.leader.foreign.Store(true)
	if h, err := api.hashOf(t.Context(), &at, 0); !errors.Is(err, kvnode.ErrNotLeader) {
		t.Errorf("hashOf() = %+v, %v where another cluster answers, want it refused", h, err)
	}
	for _, urls := range [][]string{nil, {"unix://localhost:2379"}} {
		nowhere := store.Member{ID: testMember, ClientURLs: urls}
		if _, err := api.hashOf(t.Context(), &nowhere, 0); !errors.Is(err, kvnode.ErrNotLeader) {
			t.Errorf("hashOf() = %v at %q, want that it has no address", err, urls)
		}
	}
}

// All members are compared, this one first.
func TestHashers(t *testing.T) {
	p := startPair(t)
	all := p.follower.api.Hashers()
	if len(all) != 2 || all[0].ID != testMember || all[0].Name != "a" || all[1].ID != otherMember {
		t.Fatalf("Hashers() = %v, want this member and the other", all)
	}
	want, err := p.follower.store.HashKV(0)
	if h, failed := all[0].Hash(t.Context(), 0); err != nil || failed != nil || h != want {
		t.Errorf("Hash() of this member = %+v, %v, want %+v", h, failed, want)
	}
}
