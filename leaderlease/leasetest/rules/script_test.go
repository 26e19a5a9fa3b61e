package rules

import (
	"testing"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

// The rules as stories, to be read: the comments in testdata/rules are the
// claims, the output is the proof.
func TestRuleScripts(t *testing.T) { leasetest.RunScripts(t, "testdata/rules") }
