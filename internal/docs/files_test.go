package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The map names files by their paths. Each is there.
func TestFilesOfTheMapExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:cmd|kvnode|raftwal|leaderlease)(?:/[a-z_]+)*(?:\\.go)?)`").FindAllSubmatch(text, -1)
	for _, m := range named {
		if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
			t.Errorf("docs/architecture.md names %s: %v", m[1], err)
		}
	}
	if len(named) < 60 {
		t.Errorf("docs/architecture.md names %d files and packages, want those of five ways", len(named))
	}
}
