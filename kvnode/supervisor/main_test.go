package supervisor

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	be()
	goleak.VerifyTestMain(m)
}
