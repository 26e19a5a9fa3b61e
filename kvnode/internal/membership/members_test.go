package membership

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is a registry that tests set.
type fakeStore struct {
	mu      sync.Mutex
	members *store.Members
	applied uint64
}

func (f *fakeStore) Members() *store.Members {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members
}

func (f *fakeStore) Applied() uint64 { return f.applied }

func (f *fakeStore) set(members *store.Members) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = members
}

// three returns a registry with the members 1 to 3, all of which have started.
func three() *fakeStore {
	return &fakeStore{members: registry(
		store.Member{ID: 1, Name: "m1", PeerURLs: peerURLs("m1"), Instance: "i1"},
		store.Member{ID: 2, Name: "m2", PeerURLs: peerURLs("m2"), Instance: "i2"},
		store.Member{ID: 3, Name: "m3", PeerURLs: peerURLs("m3"), Instance: "i3"},
	)}
}

func registry(members ...store.Member) *store.Members {
	r := &store.Members{ByID: make(map[uint64]store.Member), Removed: make(map[uint64]bool)}
	for _, m := range members {
		r.ByID[m.ID] = m
	}
	return r
}

func peerURLs(host string) []string { return []string{"http://" + host + ":2380"} }

// fakeLinks records the addresses of the peers.
type fakeLinks struct {
	mu     sync.Mutex
	addrs  map[uint64][]string
	hellos map[uint64]transport.Hello
}

func newLinks() *fakeLinks {
	return &fakeLinks{addrs: make(map[uint64][]string), hellos: make(map[uint64]transport.Hello)}
}

func (f *fakeLinks) SetPeer(id uint64, addrs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs[id] = addrs
}

func (f *fakeLinks) RemovePeer(id uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.addrs, id)
}

func (f *fakeLinks) Peers() (all []transport.PeerStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(f.addrs)) {
		all = append(all, transport.PeerStatus{ID: id, Hello: f.hellos[id]})
	}
	return all
}

func TestNames(t *testing.T) {
	initial := []store.Member{{ID: 1, Name: "first"}, {ID: 2, Name: "old", PeerURLs: peerURLs("m2")}}
	members := registry(
		store.Member{ID: 1, Name: "new", PeerURLs: peerURLs("m1")}, // it was started with another name
		store.Member{ID: 2, PeerURLs: peerURLs("m2")},              // it has not registered its name yet
		store.Member{ID: 0xab, PeerURLs: peerURLs("m3")},
	)
	l := NewList(1, initial, nil, &fakeStore{members: members})
	for _, test := range []struct {
		id              uint64
		label, describe string
	}{
		{1, "new (1)", "new (http://m1:2380)"},
		{2, "old (2)", "old (http://m2:2380)"},
		{0xab, "ab", "ab (http://m3:2380)"},
		{0xcd, "cd", "cd"},
		{0, "none", "0"},
	} {
		if got := l.Label(test.id); got != test.label {
			t.Errorf("Label(%x) = %q, want %q", test.id, got, test.label)
		}
		if got := l.Describe(test.id); got != test.describe {
			t.Errorf("Describe(%x) = %q, want %q", test.id, got, test.describe)
		}
	}
	if got, want := l.Names(), map[uint64]string{1: "new", 2: "old"}; !maps.Equal(got, want) {
		t.Errorf("Names() = %v, want %v", got, want)
	}
}

// A member of a version without limits may have registered any name and URLs.
func TestOldNamesAreShownQuoted(t *testing.T) {
	m := &store.Member{ID: 1, Name: "\x1b[31m" + strings.Repeat("z", 60_000), PeerURLs: []string{"http://h:1\x1b[2J", strings.Repeat("u", 60_000)}}
	if got := describe(m); strings.ContainsRune(got, '\x1b') || len(got) > 4<<10 {
		t.Errorf("describe() has %d bytes: %.100q, want it quoted and short", len(got), got)
	}
}
