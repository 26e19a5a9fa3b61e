package words

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// maxComment is how many bytes a line of a comment may have. More: it is cut off in the
// windows in which people compare and review.
const maxComment = 120

// section matches what refers to a numbered section. The project's documents have none.
var section = regexp.MustCompile(`(?i)\bsection \d|§\s?\d`)

// elsewhere matches what names the document that has the section.
var elsewhere = regexp.MustCompile(`RFC|[Tt]hesis|Raft,|raft paper`)

// Comments can be read where they stand: their lines end, and what they refer to is there.
func TestCommentsCanBeRead(t *testing.T) {
	lines := 0
	for _, path := range sources(t, ".go") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "// ") {
				continue
			}
			lines++
			if wrong := unreadable(line); wrong != "" {
				t.Errorf("%s:%d: %s: %s", path, n, wrong, line)
			}
		}
	}
	if lines < 10_000 {
		t.Fatalf("%d lines of comments found, want all", lines)
	}
}

// TestWhatCannotBeReadIsFound is the control of TestCommentsCanBeRead.
func TestWhatCannotBeReadIsFound(t *testing.T) {
	for line, want := range map[string]bool{
		"// " + strings.Repeat("x", maxComment-3):          false,
		"// " + strings.Repeat("x", maxComment-2):          true,
		"// covers the read (section 6.2).":                true,
		"// the rule of §6":                                true,
		"// does (RFC 9113, section 3.4).":                 false,
		"// may be behind (Raft thesis, section 6.4).":     false,
		"// in the section that is called How reads work.": false,
	} {
		if got := unreadable(line) != ""; got != want {
			t.Errorf("%s is found: %v, want %v", line, got, want)
		}
	}
}

func unreadable(comment string) (wrong string) {
	switch {
	case len(comment) > maxComment:
		return "a line of more than 120 bytes"
	case section.MatchString(comment) && !elsewhere.MatchString(comment):
		return "a section of no document"
	default:
		return ""
	}
}
