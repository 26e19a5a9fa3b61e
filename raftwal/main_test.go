package raftwal

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child() // see kill_test.go
		return
	}
	goleak.VerifyTestMain(m)
}
