package sim

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// A simulation lives on a few megabytes and makes forty of garbage. At Go's usual
// target more than a third of its processor time went into collecting that.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}
