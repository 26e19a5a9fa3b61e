package lint

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// embeds are the pieces of code that documents show, with the files that tests compile and run. A whole
// program is shown as it is; of other files, the regions between "embed:begin" and "embed:end".
var embeds = []struct {
	doc, marker, file string
	calls             []string // which the piece must show
}{
	{"README.md", "<!-- embed:three -->", "examples/three/main.go", []string{".SetHardState(rd.HardState)", ".Append(rd.Entries)"}},
	{"docs/kvnode.md", "<!-- embed:fastreads -->", "examples/fastreads/main.go", nil},
	{"docs/embedding.md", "<!-- embed:rawnode -->", "leaderlease/example_rawnode_test.go", []string{
		"leaderlease.NewRawNode(", "lease.Tick()", "lease.Ready(&rd)", "lease.Incoming(", "lease.RaiseCommit(", "lease.ReadRequests()",
		"lease.ApplyConfState(", "lease.Applied(", "lease.Read(ctx)",
	}},
	{"docs/embedding.md", "<!-- embed:apply -->", "leaderlease/example_applyloop_test.go", nil},
	{"docs/embedding.md", "<!-- embed:leasetest -->", "leaderlease/leasetest/example_test.go", nil},
}

func TestDocumentsShowCodeThatRuns(t *testing.T) {
	for _, e := range embeds {
		want := read(t, e.file)
		if strings.Contains(want, "// embed:begin") {
			want = region(want)
		}
		if got := fenced(read(t, e.doc), e.marker, "```go"); got != want || want == "" {
			t.Errorf("%s shows after %s\n%s\nbut %s has\n%s", e.doc, e.marker, got, e.file, want)
		}
		for _, call := range e.calls {
			if !strings.Contains(want, call) {
				t.Errorf("%s does not call %s: users paste it", e.file, call)
			}
		}
	}
}

// region returns the lines of a Go file between markers, each piece without the indentation of its
// first line. A piece marked "// embed:begin last" comes after the others.
func region(text string) string {
	var pieces, last strings.Builder
	var to *strings.Builder
	const none = "none"
	indent := none
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "// embed:begin"):
			to, indent = &pieces, none
			if strings.HasSuffix(trimmed, " last") {
				to = &last
			}
		case trimmed == "// embed:end":
			to = nil
		case to != nil:
			if indent == none {
				indent = line[:len(line)-len(strings.TrimLeft(line, "\t"))]
			}
			to.WriteString(strings.TrimPrefix(line, indent))
		}
	}
	return pieces.String() + last.String()
}

// fenced returns the first block of code of a kind after a marker; an empty marker: all such blocks.
func fenced(text, marker, fence string) string {
	_, rest, _ := strings.Cut(text, marker)
	var b strings.Builder
	open := false
	for line := range strings.Lines(rest) {
		switch {
		case open && strings.HasPrefix(line, "```"):
			if open = false; marker != "" {
				return b.String()
			}
		case open:
			b.WriteString(line)
		default:
			open = strings.HasPrefix(line, fence)
		}
	}
	return b.String()
}

// The pieces that docs/embedding.md explains are the whole patch of raftexample, at most 49 lines.
func TestEmbeddingShowsThePatch(t *testing.T) {
	doc, patch := read(t, "docs/embedding.md"), read(t, "contrib/raftexample/lease.patch")
	if got := fenced(doc, "", "```diff"); got != patch {
		t.Errorf("docs/embedding.md shows\n%s\nbut lease.patch is\n%s", got, patch)
	}
	changed := len(regexp.MustCompile(`(?m)^(\+[^+]|-[^-]|\+$|-$)`).FindAllString(patch, -1))
	if claim := fmt.Sprintf("%d changed lines", changed); changed > 49 || !strings.Contains(doc, claim) {
		t.Errorf("lease.patch changes %d lines, want at most 49, and docs/embedding.md to say %q", changed, claim)
	}
}

// What docs/symptoms.md quotes in the first cells of its tables stands in the library's source, and each
// status is explained.
func TestSymptomsAreQuoted(t *testing.T) {
	var source strings.Builder
	for _, f := range tree(t) {
		if f.isCode() && (f.packageDir() == "leaderlease" || f.packageDir() == "leaderlease/core") {
			source.WriteString(f.text)
		}
	}
	quoted := quotations(read(t, "docs/symptoms.md"))
	for _, q := range quoted {
		if !strings.HasPrefix(q, "Info()") && q != "Ready" && !strings.Contains(source.String(), q) {
			t.Errorf("docs/symptoms.md quotes %q, which the library does not say", q)
		}
	}
	statuses := regexp.MustCompile(`(?m)^\t\w+:\s+"(\w+)",$`).FindAllStringSubmatch(read(t, "leaderlease/core/view.go"), -1)
	for _, m := range statuses {
		if m[1] != "valid" && m[1] != "none" && !slices.ContainsFunc(quoted, func(q string) bool { return strings.HasSuffix(q, m[1]) }) {
			t.Errorf("docs/symptoms.md does not explain %s", m[1])
		}
	}
	if len(quoted) < 20 || len(statuses) < 10 {
		t.Errorf("%d quotations and %d statuses found, want all", len(quoted), len(statuses))
	}
}

// quotations returns what stands in code font in the first cells of a document's tables.
func quotations(text string) (all []string) {
	code := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) >= 3 {
			for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
				all = append(all, strings.TrimPrefix(m[1], "waits for "))
			}
		}
	}
	return all
}

// Tests, files and packages that documents name in code font are there.
func TestWhatDocumentsNameExists(t *testing.T) {
	tests := make(map[string]bool)
	for _, f := range tree(t) {
		for _, m := range testFunc.FindAllStringSubmatch(f.text, -1) {
			tests[m[1]] = true
		}
	}
	named := regexp.MustCompile("`(?:((?:Test|Fuzz)\\w+)|((?:cmd|kvnode|raftwal|leaderlease|internal|docs|examples|deploy)(?:/[a-z_0-9]+)+(?:\\.[a-z]+)?))`")
	n := 0
	for _, f := range tree(t) {
		if f.isGo() || f.name == "CHANGELOG.md" || within(f.name, "docs/adr", "contrib") { // they name what was, or is another project's
			continue
		}
		for _, m := range named.FindAllStringSubmatch(f.text, -1) {
			n++
			if m[1] != "" && !tests[m[1]] {
				t.Errorf("%s names %s, which is no test", f.name, m[1])
			}
			if _, err := os.Stat(filepath.Join(root, m[2])); err != nil {
				t.Errorf("%s names %s: %v", f.name, m[2], err)
			}
		}
	}
	if n < 100 {
		t.Errorf("documents name %d files and tests, want those that prove what they say", n)
	}
}

var (
	link        = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	htmlAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	testFunc    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// Links of Markdown to files of the repository and to headings lead somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := make(map[string]*file)
	for _, f := range tree(t) {
		if !f.isGo() {
			pages[f.name] = f
		}
	}
	n := 0
	cached := make(map[string][]string)
	for _, f := range pages {
		cached[f.name] = anchors(f)
	}
	for _, f := range pages {
		proseLines(f, func(at int, line string) {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				n++
				if wrong := dead(f, m[1], cached); wrong != "" {
					t.Errorf("%s: the link to %s: %s", f.at(at), m[1], wrong)
				}
			}
		})
	}
	if n < 100 {
		t.Errorf("%d links found, want all", n)
	}
	// Control.
	page := &file{name: "docs/a.md", text: "# One `two`: *three*\n\n# Four\n# Four\n"}
	for to, want := range map[string]bool{
		"b.md": true, "#five": true, "#one-two-three": false, "#four-1": false, "https://example.com": false, "../README.md": false, "../../x": true,
	} {
		if got := dead(page, to, map[string][]string{page.name: anchors(page)}) != ""; got != want {
			t.Errorf("the link %s is dead: %v, want %v", to, got, want)
		}
	}
}

// dead says why a link leads nowhere; empty if it leads somewhere. pages has the anchors of each page.
func dead(from *file, to string, pages map[string][]string) string {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return ""
	}
	name, anchor, hasAnchor := strings.Cut(to, "#")
	target := from.name
	if name != "" {
		target = path.Join(path.Dir(from.name), name)
	}
	headings, ok := pages[target]
	if !ok {
		if _, err := os.Stat(filepath.Join(root, target)); err != nil || strings.HasPrefix(target, "..") {
			return "there is no file " + target
		}
		return ""
	}
	if hasAnchor && !slices.Contains(headings, anchor) {
		return target + " has no such heading"
	}
	return ""
}

// anchors returns those that GitHub gives to a page's headings, and those in its HTML.
func anchors(f *file) (all []string) {
	count := make(map[string]int)
	proseLines(f, func(_ int, line string) {
		for _, m := range htmlAnchor.FindAllStringSubmatch(line, -1) {
			all = append(all, m[1])
		}
		level := len(line) - len(strings.TrimLeft(line, "#"))
		if level == 0 || !strings.HasPrefix(line[level:], " ") {
			return
		}
		text := link.ReplaceAllString(strings.ToLower(strings.TrimSpace(line[level:])), "")
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(text, ""), " ", "-")
		if count[anchor]++; count[anchor] > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, count[anchor]-1)
		}
		all = append(all, anchor)
	})
	return all
}

// A program that tests run is one that .ci/run installs where it is missing. The others are on each
// machine with Go, or tests do without them.
func TestCIHasWhatTestsRun(t *testing.T) {
	runs := regexp.MustCompile(`exec\.(?:LookPath\(|Command\(|CommandContext\([^,"]*(?:\([^)]*\))?[^,"]*, )"([a-z][a-z0-9-]*)"`)
	without, script, n := "go sh mount umount unshare chown setpriv chromium promtool node npm redis-server redis-benchmark", read(t, ".ci/run"), 0
	for _, f := range tree(t) {
		if !f.isTest() || within(f.name, "contrib") {
			continue
		}
		for _, m := range runs.FindAllStringSubmatch(f.text, -1) {
			n++
			if !slices.Contains(strings.Fields(without), m[1]) && !strings.Contains(script, "command -v "+m[1]+" ") {
				t.Errorf("%s runs %s, which .ci/run does not install", f.name, m[1])
			}
		}
	}
	if n == 0 {
		t.Error("no test runs a program: how they run them has changed")
	}
}
