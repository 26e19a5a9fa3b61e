package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runsProgram finds the programs that tests run by name.
var runsProgram = regexp.MustCompile(`exec\.(?:LookPath\(|Command\(|CommandContext\([^,"]*(?:\([^)]*\))?[^,"]*, )"([a-z][a-z0-9-]*)"`)

// withoutCI are those that .ci/run does not install: what each machine with Go has, and what
// tests do without, or say that they do.
var withoutCI = map[string]bool{
	"go": true, "sh": true, "mount": true, "umount": true, "unshare": true,
	"chromium": true, "promtool": true, // each as large as all else together
}

// A program that tests run is one that .ci/run installs where it is missing.
func TestCIHasWhatTestsRun(t *testing.T) {
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "contrib"):
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range runsProgram.FindAllSubmatch(text, -1) {
			name := string(m[1])
			seen[name] = true
			if !withoutCI[name] && !strings.Contains(string(script), "command -v "+name+" ") {
				t.Errorf("%s runs %s, which .ci/run does not install", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !seen["curl"] || !seen["git"] {
		t.Errorf("tests run %v, want curl and git among them: how they are run has changed", seen)
	}
}
