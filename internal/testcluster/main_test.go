package testcluster

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
const childVariable = "PROCS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "dies":
		fmt.Println("the disk is gone, " + os.Getenv("ETCD_NAME"))
		os.Exit(3)
	case "obeys", "lingers":
		obey("here", os.Getenv(childVariable) == "obeys")
	case "serves":
		obey(readyText, true)
	}
	goleak.VerifyTestMain(m)
}

// obey ends the process when it is told to, in order or not. It says word once it
// hears that.
func obey(word string, inOrder bool) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	fmt.Println(word)
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
