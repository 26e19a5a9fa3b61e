package leaderlease_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leaderlease/go/leaderlease"
)

// Every status has a name here, so that users need not import core.
func TestEveryStatusHasAName(t *testing.T) {
	all := [len(leaderlease.Stats{}.Losses)]leaderlease.Status{
		leaderlease.StatusNone, leaderlease.StatusClosed, leaderlease.StatusDisabled, leaderlease.StatusRestartHold, leaderlease.StatusNotLeader,
		leaderlease.StatusNotVoter, leaderlease.StatusNoOwnTermCommit, leaderlease.StatusConfPending, leaderlease.StatusTransferring,
		leaderlease.StatusClockFault, leaderlease.StatusDiskStalled, leaderlease.StatusExpired, leaderlease.StatusMargin, leaderlease.StatusValid,
	}
	for i, s := range all {
		if int(s) != i {
			t.Errorf("status %d, %v, has no name in package leaderlease", i, leaderlease.Status(i))
		}
	}
}

// The examples embed the library as users do: they import leaderlease, its clocks
// and fences, and nothing beneath.
func TestExamplesImportNothingBeneath(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %d examples, %v, want some", len(files), err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range parsed.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "leaderlease/core") || strings.Contains(path, "/internal/") {
				t.Errorf("%s imports %s, want what users import", file, path)
			}
		}
	}
}
