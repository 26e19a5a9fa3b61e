package leasetest

import "testing"

func TestScripts(t *testing.T) { RunScripts(t, "testdata/script") }

// TestFoundScripts plays the scripts that searches have found with planted bugs. Without
// the bugs they must pass. "make explore-mutants" makes them.
func TestFoundScripts(t *testing.T) { RunScripts(t, "testdata/found") }

// TestScript plays one script: go test -run TestScript -args -script=FILE [-rewrite].
func TestScript(t *testing.T) {
	if *scriptFile != "" {
		RunScript(t, *scriptFile)
	}
}
