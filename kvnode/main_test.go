package kvnode

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// often is how many times to do something: few of them under the race detector.
func often(times, few int) int {
	if raceEnabled {
		return few
	}
	return times
}
