package stale

import (
	"testing"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The stock run is the negative control: an experiment that finds nothing there
// would find nothing anywhere.
func TestOnlyStockRaftServesStaleReads(t *testing.T) {
	const trials = 20
	ours := Run(leasetest.Library, trials, 1)
	stock := Run(leasetest.Stock, trials, 1)
	if ours.Stale != 0 || ours.Reads < LeastReads*trials || ours.Trials != trials {
		t.Errorf("leaderlease: %d stale reads of %d in %d trials, want 0 of %d at least", ours.Stale, ours.Reads, ours.Trials, LeastReads*trials)
	}
	if stock.Stale == 0 || stock.StaleTrials == 0 || stock.MeanWindow() <= 0 {
		t.Errorf("raft's ReadOnlyLeaseBased: %+v, want stale reads", stock)
	}
	if ours.MeanWindow() != 0 {
		t.Errorf("MeanWindow() = %v without stale reads, want 0", ours.MeanWindow())
	}
}
