package words

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sentencesHeading is that of the glossary's table of words that comments have for one
// thing only.
const sentencesHeading = "## Words that comments have for one thing only"

// A sentenceRule is a row of it.
type sentenceRule struct {
	stem   string
	others []string // words that begin as the stem does, and are other words
	files  []string // where it may stand, as package/file.go
}

func parseSentenceRule(row string) (r sentenceRule, ok bool) {
	cells := strings.Split(row, "|")
	if len(cells) != 5 {
		return r, false
	}
	code := func(cell string) (all []string) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	words := code(cells[1])
	if len(words) == 0 {
		return r, false
	}
	return sentenceRule{words[0], words[1:], code(cells[3])}, true
}

// refuses reports whether a sentence, or a name, in a file has the word though it may not.
func (r *sentenceRule) refuses(file, sentence string) bool {
	if !strings.Contains(strings.ToLower(sentence), r.stem) { // nearly all: split takes its time
		return false
	}
	if slices.ContainsFunc(r.files, func(p string) bool { ok, err := path.Match(p, file); return ok && err == nil }) {
		return false
	}
	return slices.ContainsFunc(split(sentence), func(w string) bool {
		return strings.Contains(w, r.stem) && !slices.ContainsFunc(r.others, func(o string) bool { return strings.HasPrefix(w, o) })
	})
}

func TestCommentsHaveTheirWords(t *testing.T) {
	text, err := os.ReadFile(glossary)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), sentencesHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	var rules []sentenceRule
	for line := range strings.Lines(section) {
		if r, ok := parseSentenceRule(strings.TrimSpace(line)); ok {
			rules = append(rules, r)
		}
	}
	if len(rules) < 2 {
		t.Fatalf("%s has %d rules below %q, want 2 at least", glossary, len(rules), sentencesHeading)
	}
	for _, name := range sources(t, ".go") {
		f := parse(t, name)
		file := filepath.Base(filepath.Dir(name)) + "/" + filepath.Base(name)
		check := func(n ast.Node, sentence string) {
			for _, r := range rules {
				if r.refuses(file, sentence) {
					t.Errorf("%s: %q has the word %q, which means another thing: see %s", f.at(n), sentence, r.stem, glossary)
				}
			}
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				check(c, c.Text)
			}
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				check(fn, fn.Name.Name)
			}
		}
	}
}

// TestSentencesAreRefused is the control of TestCommentsHaveTheirWords.
func TestSentencesAreRefused(t *testing.T) {
	for _, test := range []struct {
		row, file, sentence string
		refused             bool
	}{
		{"| `vouch` | a | `kvnode/*.go` |", "leaderlease/read.go", "// a leader vouches for its answer", true},
		{"| `vouch` | a | `kvnode/*.go` |", "leaderlease/read_test.go", "TestUnvouchedAnswers", true},
		{"| `vouch` | a | `kvnode/*.go` |", "kvnode/book.go", "// a member vouches for it", false},
		{"| `vouch` | a | `kvnode/*.go` |", "leaderlease/read.go", "// a leader attests its answer", false},
		{"| `boot`, but not `bootstrap` | a | – |", "leasetest/node.go", "// start boots a process", true},
		{"| `boot`, but not `bootstrap` | a | – |", "leasetest/node.go", "// before Bootstrap", false},
	} {
		r, ok := parseSentenceRule(test.row)
		if !ok {
			t.Fatalf("parseSentenceRule(%q) finds no rule", test.row)
		}
		if got := r.refuses(test.file, test.sentence); got != test.refused {
			t.Errorf("%s: %s: %s is refused: %v, want %v", test.row, test.file, test.sentence, got, test.refused)
		}
	}
}
