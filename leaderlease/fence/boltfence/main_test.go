package boltfence

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the entry of the process that TestKilledProcess starts and
// kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
