package docs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// notText returns the files that are not text: pages and JSON were half of what a
// clone fetches.
func notText(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return filepath.Ext(name) == ".txt" })
}

func TestResultsAreText(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("..", "..", "bench", "results"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d results, %v", len(files), err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if found := notText(names); len(found) > 0 {
		t.Errorf("bench/results holds %q, want text only", found)
	}
	if found := notText([]string{"a.txt", "b.html", "c.bench.txt", "d.json"}); len(found) != 2 {
		t.Errorf("notText() finds %q, want b.html and d.json", found)
	}
}
