package leasetest

import "testing"

func TestScripts(t *testing.T) { RunScripts(t, "testdata/script") }

// What searches have found with bugs planted goes right without them. Made by make
// explore-mutants, which sees each script fail with its bug.
func TestFoundScripts(t *testing.T) { RunScripts(t, "testdata/found") }

// TestScript plays one script: go test -run TestScript -args -script=FILE [-rewrite].
func TestScript(t *testing.T) {
	if *scriptFile != "" {
		RunScript(t, *scriptFile)
	}
}
