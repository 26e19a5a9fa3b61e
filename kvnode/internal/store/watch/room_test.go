package watch

import (
	"errors"
	"strings"
	"testing"
)

// However many watchers a client asks for, and of keys however long: all of a member take
// so much memory at most. Who is refused is told how much, and what runs goes on; what a
// watcher took is free when it is cancelled, was refused, or its stream is closed.
func TestWatchersTakeSoMuchMemoryAtMost(t *testing.T) {
	r := testRig(t)
	one := Request{Key: []byte("key"), End: []byte("kez")}
	r.hub.room.most = 4 * one.bytes()
	first, second := r.hub.NewStream(Limits{}), r.hub.NewStream(Limits{})
	watch := func(s *Stream, want bool) int64 {
		t.Helper()
		id, _, err := s.Watch(one)
		if full, ok := errors.AsType[*FullError](err); ok == want || ok && (full.Most != r.hub.room.most || full.Bytes != one.bytes()) {
			t.Fatalf("Watch() = %v, want room for it: %v", err, want)
		}
		return id
	}
	id := watch(first, true)
	for range 3 {
		watch(second, true)
	}
	watch(first, false)
	if n := r.hub.open.Load(); n != 4 {
		t.Errorf("%d watchers, want 4", n)
	}
	if !first.Cancel(id) {
		t.Fatal("Cancel() of a watcher that there is = false")
	}
	if _, _, err := first.Watch(Request{Key: []byte(strings.Repeat("k", 1<<10))}); err == nil {
		t.Error("a watcher of a long key finds room for a short one enough")
	}
	if _, _, err := first.Watch(Request{ID: All, Key: one.Key}); !errors.Is(err, ErrReservedID) {
		t.Errorf("Watch() = %v, want %v", err, ErrReservedID)
	}
	watch(first, true)
	watch(first, false)
	second.Close()
	for range 3 {
		watch(first, true)
	}
	watch(first, false)
	first.Close()
	first.Close()
	if got := r.hub.room.taken.Load(); got != 0 {
		t.Errorf("%d bytes are taken when all streams are closed, want 0", got)
	}
	if text := (&FullError{1, 2, 3}).Error(); !strings.Contains(text, "ResourceExhausted") || !strings.Contains(text, "2 of 3 bytes") {
		t.Errorf("the error is %q, want the code, the value and the limit", text)
	}
}
