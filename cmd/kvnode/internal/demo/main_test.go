package demo

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable turns this binary into a member's process, for tests of how
// processes are handled.
const childVariable = "DEMO_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "dies":
		fmt.Println("the disk is gone")
		os.Exit(3)
	case "obeys", "lingers":
		obey(os.Getenv(childVariable) == "obeys")
	}
	goleak.VerifyTestMain(m)
}

// obey ends the process when it is told to, in order or not.
func obey(inOrder bool) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	fmt.Println("here")
	select {
	case <-told:
	case <-time.After(time.Minute): // nobody does, so the test has failed
	}
	if !inOrder {
		fmt.Println("cannot save")
		os.Exit(1)
	}
	os.Exit(0)
}
