package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// maxPatchLines is what the lease may change in etcd's raftexample.
const maxPatchLines = 49

// The pieces that docs/embedding.md explains are the whole patch. contrib/raftexample
// applies and runs them as a reader would.
func TestEmbeddingShowsThePatch(t *testing.T) {
	const path = "../../contrib/raftexample/lease.patch"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pieces strings.Builder
	open := false
	for _, line := range readLines(t, embeddingPath) {
		switch {
		case line == "```diff":
			open = true
		case strings.HasPrefix(line, "```"):
			open = false
		case open:
			pieces.WriteString(line + "\n")
		}
	}
	want := strings.ReplaceAll(string(text), "\r\n", "\n")
	if pieces.String() != want {
		t.Errorf("docs/embedding.md shows\n%s\nbut %s is\n%s", pieces.String(), path, want)
	}
	added, removed := 0, 0
	for line := range strings.Lines(want) {
		switch {
		case strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---"):
		case line[0] == '+':
			added++
		case line[0] == '-':
			removed++
		}
	}
	if added+removed > maxPatchLines {
		t.Errorf("%s changes %d lines, want at most %d", path, added+removed, maxPatchLines)
	}
	says := strings.Join(readLines(t, embeddingPath), "\n")
	for _, claim := range []string{
		fmt.Sprintf("in %d changed lines", added+removed),
		fmt.Sprintf("%d changed lines in three files: %d added, %d removed", added+removed, added, removed),
	} {
		if !strings.Contains(says, claim) {
			t.Errorf("docs/embedding.md does not say %q", claim)
		}
	}
}
