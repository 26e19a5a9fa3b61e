package supervisor

import (
	"testing"

	"go.uber.org/goleak"
)

// runAsHelper runs this test binary as a supervisor or as a child, if a test has started it as one.
// It returns otherwise.
var runAsHelper = func() {}

func TestMain(m *testing.M) {
	runAsHelper()
	goleak.VerifyTestMain(m)
}
