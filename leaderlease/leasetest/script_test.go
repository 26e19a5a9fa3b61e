package leasetest

import "testing"

func TestScripts(t *testing.T) { RunScripts(t, "testdata/script") }
