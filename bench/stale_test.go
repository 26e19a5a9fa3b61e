package bench

import (
	"testing"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The stock run is the negative control: an experiment that finds nothing there
// would find nothing anywhere.
func TestOnlyStockRaftServesStaleReads(t *testing.T) {
	// leastReads is how many reads a trial must serve on average under the old leader's lease: a leader that
	// serves none is never stale.
	const trials, leastReads = 20, 50
	ours := cutLeadersOff(leasetest.Library, trials, 1)
	stock := cutLeadersOff(leasetest.Stock, trials, 1)
	if ours.Stale != 0 || ours.Reads < leastReads*trials || ours.Trials != trials {
		t.Errorf("leaderlease: %d stale reads of %d in %d trials, want 0 of %d at least", ours.Stale, ours.Reads, ours.Trials, leastReads*trials)
	}
	if stock.Stale == 0 || stock.StaleTrials == 0 || stock.meanWindow() <= 0 {
		t.Errorf("raft's ReadOnlyLeaseBased: %+v, want stale reads", stock)
	}
	if ours.meanWindow() != 0 {
		t.Errorf("meanWindow() = %v without stale reads, want 0", ours.meanWindow())
	}
}
