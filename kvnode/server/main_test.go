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
