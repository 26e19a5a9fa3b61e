package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	readmePath    = "../../README.md"
	programPath   = "../../examples/three/main.go"
	embeddingPath = "../../docs/embedding.md"
	embedPath     = "../../leaderlease/example_rawnode_test.go"
	// maxEmbedLines is what the embedding may take in a raft loop.
	maxEmbedLines = 20
)

// The program that the README shows is examples/three, and saves all that raft must find
// after a restart. internal/release pastes and runs it as a user would.
func TestReadmeShowsAProgramThatRuns(t *testing.T) {
	want, err := os.ReadFile(programPath)
	if err != nil {
		t.Fatal(err)
	}
	if got := snippet(t, readmePath, "<!-- embed:three -->"); got != string(want) {
		t.Errorf("README.md shows\n%s\nbut %s is\n%s", got, programPath, want)
	}
	for _, call := range []string{".SetHardState(rd.HardState)", ".Append(rd.Entries)"} {
		if !strings.Contains(string(want), call) {
			t.Errorf("%s does not call %s: users paste it", programPath, call)
		}
	}
}

// Nothing is published yet. One place tells what works once it is, and what has to happen first.
func TestOnlyTheReadmeTellsOfAPublishedVersion(t *testing.T) {
	const marked = "Once the tags are pushed"
	published := regexp.MustCompile("go (?:get|install) [^`\n]*github\\.com/leaderlease/go/")
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		after := false
		for i, line := range readLines(t, path) {
			after = after || path == filepath.FromSlash(readmePath) && strings.HasPrefix(line, marked)
			if !after && published.MatchString(line) {
				t.Errorf("%s:%d tells how a published version is used, before %q of README.md: %s", path, i+1, marked, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// So is the program of docs/kvnode.md, whose own test runs it.
func TestFastReadsAreShown(t *testing.T) {
	const path = "../../examples/fastreads/main.go"
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := snippet(t, "../../docs/kvnode.md", "<!-- embed:fastreads -->"); got != string(want) {
		t.Errorf("docs/kvnode.md shows\n%s\nbut %s is\n%s", got, path, want)
	}
}

// The loop that docs/embedding.md shows is compiled and run by Example_rawNode.
func TestEmbeddingShowsCodeThatRuns(t *testing.T) {
	want := region(t, embedPath)
	shows(t, "<!-- embed:rawnode -->", embedPath)
	if n := strings.Count(want, "\n"); n == 0 || n > maxEmbedLines {
		t.Errorf("the embedding takes %d lines, want at most %d", n, maxEmbedLines)
	}
	for _, call := range []string{
		"leaderlease.NewRawNode(", "lease.Tick()", "lease.Ready(&rd)", "lease.Incoming(", "lease.LearnCommit(", "lease.ReadRequests()",
		"lease.ApplyConfState(", "lease.Applied(", "lease.Read(ctx)",
	} {
		if !strings.Contains(want, call) {
			t.Errorf("the embedding does not show %s", call)
		}
	}
}

// The other pieces of code in docs/embedding.md are examples that run, too.
func TestEmbeddingShowsExamples(t *testing.T) {
	shows(t, "<!-- embed:apply -->", "../../leaderlease/example_applyloop_test.go")
	shows(t, "<!-- embed:leasetest -->", "../../leaderlease/leasetest/example_test.go")
}

// shows fails the test unless docs/embedding.md has the regions of a file after
// marker.
func shows(t *testing.T, marker, path string) {
	t.Helper()
	want := region(t, path)
	if got := snippet(t, embeddingPath, marker); got != want {
		t.Errorf("docs/embedding.md shows\n%s\nbut the regions of %s between embed:begin and embed:end are\n%s", got, path, want)
	}
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n")
}

// region returns the lines of a Go file that stand between markers, each piece
// without the indentation of its first line. A piece marked "// embed:begin last"
// comes after the others.
func region(t *testing.T, path string) string {
	t.Helper()
	var pieces, last strings.Builder
	var to *strings.Builder
	var piece []string
	for _, line := range readLines(t, path) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(text, "// embed:begin"):
			to, piece = &pieces, nil
			if strings.HasSuffix(text, " last") {
				to = &last
			}
		case text == "// embed:end":
			to.WriteString(dedent(piece))
			to = nil
		case to != nil:
			piece = append(piece, line)
		}
	}
	return pieces.String() + last.String()
}

func dedent(lines []string) string {
	var b strings.Builder
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	for _, line := range lines {
		b.WriteString(strings.TrimPrefix(line, indent) + "\n")
	}
	return b.String()
}

// snippet returns the fenced block that follows a marker.
func snippet(t *testing.T, path, marker string) string {
	t.Helper()
	lines := readLines(t, path)
	var b strings.Builder
	found, open := false, false
	for _, line := range lines {
		switch {
		case strings.TrimSpace(line) == marker:
			found = true
		case found && !open && strings.HasPrefix(line, "```go"):
			open = true
		case open && strings.HasPrefix(line, "```"):
			return b.String()
		case open:
			b.WriteString(line + "\n")
		}
	}
	t.Fatalf("%s has no fenced Go block after %s", path, marker)
	return ""
}
