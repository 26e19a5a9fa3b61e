package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// topLevel matches how a function begins that go test runs.
var topLevel = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)(?:[^\Wa-z]\w*)?)\(`)

// narrowed returns an overlay in which the tests of m.Pkg that m does not name are
// generic functions. They are checked as ever, but no code is made of them: a package
// with long tests compiles in half the time.
func narrowed(m Mutant, overlay, dir string) (string, error) {
	pattern, _, _ := strings.Cut(m.Test, "/")
	named, err := regexp.Compile(pattern + "|^TestMain$")
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	b, err := os.ReadFile(overlay)
	if err := errors.Join(err, json.Unmarshal(b, &o)); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(m.Pkg, "*_test.go"))
	for i, file := range files {
		path, absErr := filepath.Abs(file)
		source, readErr := os.ReadFile(cmp.Or(o.Replace[path], path))
		text := topLevel.ReplaceAllStringFunc(string(source), func(begin string) string {
			name := topLevel.FindStringSubmatch(begin)[1]
			if named.MatchString(name) {
				return begin
			}
			return "func leftOut" + name + "[_ any]("
		})
		o.Replace[path] = filepath.Join(dir, strconv.Itoa(i)+"_narrow_test.go")
		err = errors.Join(err, absErr, readErr, os.WriteFile(o.Replace[path], []byte(text), 0o600))
	}
	b, jsonErr := json.Marshal(o)
	overlay = filepath.Join(dir, "narrow.json")
	return overlay, errors.Join(err, jsonErr, os.WriteFile(overlay, b, 0o600))
}
