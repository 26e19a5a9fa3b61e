package store_test

import (
	"reflect"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// TestMembersFollowChangesAndRegistrations walks a member through its life.
func TestMembersFollowChangesAndRegistrations(t *testing.T) {
	r := newReplica(t)
	index := uint64(0)
	change := func(c store.MemberChange) {
		index++
		r.ApplyConf(index, 1, nil, &c)
	}
	register := func(m store.Member, want error) {
		t.Helper()
		index++
		if res := r.Apply(index, 1, encode(t, &store.Command{ID: 5, Register: &m})); res.Err != want || res.ID != 5 { //nolint:errorlint // clients see this very value
			t.Errorf("Apply(register %+v) = %+v, want %v", m, res, want)
		}
	}
	expect := func(what string, want store.Members) {
		t.Helper()
		if got := r.Members(); !reflect.DeepEqual(*got, want) {
			t.Errorf("Members() %s = %+v, want %+v", what, *got, want)
		}
	}
	self := store.Member{ID: 1, Name: "one", ClientURLs: []string{"http://c:1"}, Instance: "x", PeerURLs: []string{"ignored"}, Learner: true}
	register(self, rpctypes.ErrGRPCMemberNotFound)
	expect("of an empty store", store.Members{ByID: map[uint64]store.Member{}, Removed: map[uint64]bool{}})

	urls := []string{"http://p:1"}
	change(store.MemberChange{Set: &store.Member{ID: 1, PeerURLs: urls, Learner: true}})
	urls[0] = "changed by the caller"
	before := r.Members()
	register(self, nil)
	known := store.Member{ID: 1, Name: "one", ClientURLs: []string{"http://c:1"}, Instance: "x", PeerURLs: []string{"http://p:1"}, Learner: true}
	expect("after a registration", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})
	if before.ByID[1].Name != "" {
		t.Errorf("an older registry changed: %+v", before)
	}

	change(store.MemberChange{Set: &store.Member{ID: 1, PeerURLs: []string{"http://p:2"}}})
	known.PeerURLs, known.Learner = []string{"http://p:2"}, false
	expect("after a promotion", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})

	wiped := self
	wiped.Instance = "y"
	register(wiped, store.ErrInstance)
	expect("after a member came back without its directory", store.Members{ByID: map[uint64]store.Member{1: known}, Removed: map[uint64]bool{}})

	change(store.MemberChange{Remove: 1})
	register(self, rpctypes.ErrGRPCMemberNotFound)
	expect("after a removal", store.Members{ByID: map[uint64]store.Member{}, Removed: map[uint64]bool{1: true}})
}
