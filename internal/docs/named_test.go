package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Documents prove what they claim by the names of tests. Each is there.
func TestNamedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	there := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range defined.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for _, doc := range []string{"SECURITY.md", filepath.Join("docs", "reliability.md")} {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Fatal(err)
		}
		all := named.FindAllSubmatch(text, -1)
		for _, m := range all {
			if !there[string(m[1])] {
				t.Errorf("%s names %s, which is no test", doc, m[1])
			}
		}
		if len(all) < 10 {
			t.Errorf("%s names %d tests, want those that prove what it says", doc, len(all))
		}
	}
}
