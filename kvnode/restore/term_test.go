package restore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// No term is above the largest signed 64-bit number, as which most clients keep terms.
func TestRaisedTermsHaveALimit(t *testing.T) {
	file, _ := savedSnapshot(t)
	for bump, want := range map[uint64]bool{math.MaxInt64 - 2: true, math.MaxInt64 - 1: false, math.MaxUint64: false} {
		cfg := restoreOf(t, file)
		cfg.BumpTerm = bump
		got, err := Snapshot(cfg)
		if (err == nil) != want {
			t.Errorf("Snapshot() of term 2 with bump %d = %+v, %v, want success %v", bump, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint(bump)) {
			t.Errorf("Snapshot() with bump %d = %v, want the number", bump, err)
		}
	}
}

// A snapshot without the term of its newest entry is damaged: the new cluster's first term would
// be unknown.
func TestASnapshotWithoutATermIsRefused(t *testing.T) {
	if got, err := firstTerm(store.Checkpoint{Index: 5}, 0, 7); !errors.Is(err, ErrDamaged) {
		t.Errorf("firstTerm() of no term = %d, %v, want ErrDamaged", got, err)
	}
	if got, err := firstTerm(store.Checkpoint{Index: 5, Term: 1}, 0, 7); got != 8 || err != nil {
		t.Errorf("firstTerm() of term 1 by 7 = %d, %v, want 8", got, err)
	}
	if got, err := firstTerm(store.Checkpoint{Index: 5, Term: 1}, 3, 7); got != 10 || err != nil {
		t.Errorf("firstTerm() of term 1 by 7, after a vote in term 3, = %d, %v, want 10", got, err)
	}
}
