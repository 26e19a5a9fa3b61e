package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const symptomsPath = "../../docs/symptoms.md"

// What docs/symptoms.md quotes as seen stands in the library's source.
func TestSymptomsAreQuoted(t *testing.T) {
	quoted := quotations(t, symptomsPath)
	if len(quoted) < 20 {
		t.Fatalf("%s quotes %q, want each error that it explains", symptomsPath, quoted)
	}
	source := librarySource(t)
	for _, q := range quoted {
		if !strings.Contains(source, q) {
			t.Errorf("%s quotes %q, which the library does not say", symptomsPath, q)
		}
	}
}

// Each status but Valid and None is explained.
func TestSymptomsExplainEachStatus(t *testing.T) {
	quoted := strings.Join(quotations(t, symptomsPath), "\n") + "\n"
	text, err := os.ReadFile("../../leaderlease/core/status.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t\w+:\s+"(\w+)",$`).FindAllSubmatch(text, -1)
	if len(names) < 10 {
		t.Fatalf("%d statuses found, want all", len(names))
	}
	for _, m := range names {
		name := string(m[1])
		if name != "valid" && name != "none" && !strings.Contains(quoted, name+"\n") {
			t.Errorf("%s does not explain %s", symptomsPath, name)
		}
	}
}

// quotations returns what stands in code font in the first cells of a document's
// tables, but for names of Go and of functions.
func quotations(t *testing.T, path string) (all []string) {
	t.Helper()
	code := regexp.MustCompile("`([^`]+)`")
	for _, line := range readLines(t, path) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			if !strings.HasPrefix(m[1], "Info()") && m[1] != "Ready" {
				all = append(all, strings.TrimPrefix(m[1], "waits for "))
			}
		}
	}
	return all
}

// librarySource is the text of leaderlease and its core, tests excepted, with
// strings that are continued joined.
func librarySource(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, pattern := range []string{"../../leaderlease/*.go", "../../leaderlease/core/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	return b.String()
}
