package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// topLevel matches how a function begins that go test runs.
var topLevel = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)(?:[^\Wa-z]\w*)?)\(`)

var word = regexp.MustCompile(`\w+`)

// narrowed returns an overlay in which those tests of their package that no mutant of all
// names are generic functions. They are checked as ever, but no code is made of them: a package
// with long tests compiles in half the time.
func narrowed(all []Mutant, overlay, dir string) (string, error) {
	patterns := []string{"^TestMain$"}
	for _, m := range all {
		pattern, _, _ := strings.Cut(m.Test, "/")
		patterns = append(patterns, pattern)
	}
	named, err := regexp.Compile(strings.Join(patterns, "|"))
	if err != nil {
		return "", err
	}
	var o struct{ Replace map[string]string }
	b, err := os.ReadFile(overlay)
	if err := errors.Join(err, json.Unmarshal(b, &o)); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(all[0].Pkg, "*_test.go"))
	texts, times := make(map[string]string), make(map[string]int)
	for _, file := range files {
		path, absErr := filepath.Abs(file)
		source, readErr := os.ReadFile(cmp.Or(o.Replace[path], path))
		err = errors.Join(err, absErr, readErr)
		texts[path] = string(source)
		for _, w := range word.FindAllString(texts[path], -1) {
			times[w]++
		}
	}
	for path, text := range texts {
		text = topLevel.ReplaceAllStringFunc(text, func(begin string) string {
			name := topLevel.FindStringSubmatch(begin)[1]
			if named.MatchString(name) || times[name] > 1 { // others may call it
				return begin
			}
			return "func leftOut" + name + "[_ any]("
		})
		o.Replace[path] = filepath.Join(dir, "narrow_"+filepath.Base(path))
		err = errors.Join(err, os.WriteFile(o.Replace[path], []byte(text), 0o600))
	}
	b, jsonErr := json.Marshal(o)
	overlay = filepath.Join(dir, "narrow.json")
	return overlay, errors.Join(err, jsonErr, os.WriteFile(overlay, b, 0o600))
}
