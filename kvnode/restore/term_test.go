package restore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
)

// Terms end where a signed number of 64 bits does, which is what most clients keep
// them in.
func TestRaisedTermsHaveALimit(t *testing.T) {
	file, _ := savedSnapshot(t)
	for bump, want := range map[uint64]bool{math.MaxInt64 - 2: true, math.MaxInt64 - 1: false, math.MaxUint64: false} {
		cfg := restoreOf(t, file)
		cfg.BumpTerm = bump
		got, err := RestoreSnapshot(cfg)
		if (err == nil) != want {
			t.Errorf("RestoreSnapshot() of term 2 with bump %d = %+v, %v, want success %v", bump, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint(bump)) {
			t.Errorf("RestoreSnapshot() with bump %d = %v, want the number", bump, err)
		}
	}
}

// Every snapshot has the term of its newest entry. Without one nobody knows what
// to begin above.
func TestASnapshotWithoutATermIsRefused(t *testing.T) {
	r := RestoreConfig{BumpTerm: 7}
	if got, err := r.raise(store.Checkpoint{Index: 5}, 0); !errors.Is(err, ErrSnapshotDamaged) {
		t.Errorf("raise() of no term = %d, %v, want ErrSnapshotDamaged", got, err)
	}
	if got, err := r.raise(store.Checkpoint{Index: 5, Term: 1}, 0); got != 8 || err != nil {
		t.Errorf("raise() of term 1 by 7 = %d, %v, want 8", got, err)
	}
	if got, err := r.raise(store.Checkpoint{Index: 5, Term: 1}, 3); got != 10 || err != nil {
		t.Errorf("raise() of term 1 by 7, after a vote in term 3, = %d, %v, want 10", got, err)
	}
}
