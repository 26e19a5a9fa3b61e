package server

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long something that must happen may take: so long only where nothing
// works any more, whatever else the machine does.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patientStop has members that stop wait for long for requests under way, for tests in which none
// is to be cut: a busy machine may need longer than drainTime. It comes before the members start.
func patientStop(t *testing.T) {
	t.Helper()
	before := drainTime
	drainTime = patience / 2
	t.Cleanup(func() { drainTime = before })
}

// skipShort skips a test that waits for seconds of real time. make verify runs it.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for seconds of real time")
	}
}
