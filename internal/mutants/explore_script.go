package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leasetestPkg is where the explorer's second level searches. What it finds is a script.
const leasetestPkg = "./leaderlease/leasetest"

// keptScripts is where the scripts are kept that were found, for TestFoundScripts.
const keptScripts = "leaderlease/leasetest/testdata/found/found.txt"

// scripts are those that were found, with what they print where no bug is planted.
type scripts struct {
	dir string
	// ours is the test binary without a bug.
	ours string
	// names are the bugs of each script, in the order of order.
	names map[string][]string
	order []string
}

func newScripts(ctx context.Context, dir string) (*scripts, error) {
	ours := filepath.Join(dir, "ours")
	if err := os.Mkdir(ours, 0o700); err != nil {
		return nil, err
	}
	binary, err := compile(ctx, leasetestPkg, "", ours)
	return &scripts{dir: dir, ours: binary, names: make(map[string][]string)}, err
}

// file is where a search leaves its script.
func (s *scripts) file() string { return filepath.Join(s.dir, "script.txt") }

// keep takes the script that was found with m planted. It has m's binary fail what it
// prints on ours, or says that it does not.
func (s *scripts) keep(ctx context.Context, m Mutant, binary string) (verdict string, err error) {
	play := []string{"-test.run", "^TestScript$", "-script", s.file()}
	if out, err := run(ctx, leasetestPkg, s.ours, append(play, "-rewrite")...); err != nil {
		return "", fmt.Errorf("play the script without the bug: %w: %s", err, lastLine(out))
	}
	text, err := os.ReadFile(s.file())
	if err != nil {
		return "", err
	}
	if _, err := run(ctx, leasetestPkg, binary, play...); err == nil {
		return ", its script does not show it", nil
	}
	if s.names[string(text)] == nil {
		s.order = append(s.order, string(text))
	}
	if name := m.Rule + ": " + m.Name; !slices.Contains(s.names[string(text)], name) {
		s.names[string(text)] = append(s.names[string(text)], name)
	}
	return "", nil
}

// write writes what was kept.
func (s *scripts) write(path string) error {
	var b strings.Builder
	for _, text := range s.order {
		for _, name := range s.names[text] {
			fmt.Fprintf(&b, "# %s\n", name)
		}
		b.WriteString(text)
		b.WriteByte('\n')
	}
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // it is kept in the repository
}
