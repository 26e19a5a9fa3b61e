package kvnode

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// often returns times, or few with -short.
func often(times, few int) int {
	if testing.Short() {
		return few
	}
	return times
}
