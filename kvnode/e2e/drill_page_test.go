package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// procedures is where operators find the commands that the drills perform.
const procedures = "../../docs/operations.md"

// marker is in front of a block of commands: <!-- drill:NAME -->.
var marker = regexp.MustCompile(`(?m)^<!-- drill:([a-z-]+) -->$`)

// blocks returns the commands of the page by the names of their markers, those with the
// same one in order.
func blocks(text string) (map[string][]string, error) {
	found := make(map[string][]string)
	for _, at := range marker.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		rest, ok := strings.CutPrefix(text[at[1]:], "\n```sh\n")
		block, _, closed := strings.Cut(rest, "\n```\n")
		if !ok || !closed {
			return nil, fmt.Errorf("drill:%s has no block of sh behind it", name)
		}
		found[name] = append(found[name], block+"\n")
	}
	return found, nil
}

// commands returns the blocks with that name.
func commands(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(procedures)
	must(t, err)
	all, err := blocks(string(text))
	must(t, err)
	if len(all[name]) == 0 {
		t.Fatalf("%s has no commands with the marker drill:%s", procedures, name)
	}
	return all[name]
}

// Every marker of the page is of a drill.
func TestDrillsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile(procedures)
	must(t, err)
	all, err := blocks(string(text))
	must(t, err)
	want := []string{"setup", "found"}
	for _, d := range drills {
		want = append(want, d.blocks...)
	}
	for name := range all {
		if !slices.Contains(want, name) {
			t.Errorf("no drill performs drill:%s of %s", name, procedures)
		}
	}
	if n := strings.Count(string(text), "drill:"); n != len(marker.FindAllString(string(text), -1)) {
		t.Errorf("%s has %d words drill:, and %d markers: one is written in another way", procedures, n, len(marker.FindAllString(string(text), -1)))
	}
	if _, err := blocks("<!-- drill:a -->\n\n```sh\nx\n```\n"); err == nil {
		t.Error("a marker that is not next to its commands is not found out")
	}
}
