package main

import (
	"regexp"
	"strings"
	"testing"
)

// Each operator makes the change in its name, and leaves log lines and errors alone.
func TestOperators(t *testing.T) {
	for _, tt := range []struct {
		operator, code string
		want           []string
	}{
		{"negate", "if a < b {\n}", []string{"if a >= b {"}},
		{"negate", "if ok {\n}", []string{"if !(ok) {"}},
		{"boundary", "_ = a < b", []string{"_ = a <= b"}},
		{"boundary", "_ = a.Before(b)", []string{"_ = !a.After(b)"}},
		{"one unit", "_ = a.Add(b)", []string{"_ = (a.Add(b) + 1)", "_ = (a.Add(b) - 1)"}},
		{"one unit", "_ = 7", []string{"_ = 8", "_ = 6"}},
		{"wrong sign", "_ = a + b", []string{"_ = a - b"}},
		{"and/or", "_ = a && b", []string{"_ = a || b"}},
		{"drop condition", "_ = a || b", []string{"_ = a", "_ = b"}},
		{"drop early exit", "if a {\nreturn\n}", []string{"if false && (a) {"}},
		{"drop call", "a()", []string{""}},
		{"drop call", "defer a.Unlock()", []string{""}},
		{"drop assignment", "a.b = c", []string{"_ = c"}},
		{"swap", "a()\nb()", []string{"b() a()"}},
		{"stale copy", "a()\nb := c()", []string{"b := c() a()"}},
		{"wrong field", "_ = a.Sent", []string{"_ = a.Reading"}},
		{"wrong extreme", "_ = max(a, b)", []string{"_ = min(a, b)"}},
		{"wrong result", "return false", []string{"return true"}},
		{"drop call", "panic(1)", nil},
		{"one unit", "l.cfg.Logger.Warn(7)", nil},
		{"wrong result", `_ = fmt.Errorf("%v", true)`, nil},
		{"swap", "log.Print(1)\nb()", nil},
	} {
		t.Run(tt.operator+" "+tt.code, func(t *testing.T) {
			found, err := mutate("a.go", []byte("package a\n\nfunc f() {\n"+tt.code+"\n}\n"))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range found {
				if s.operator == tt.operator {
					got = append(got, s.after)
				}
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("mutate() by %q = %q, want %q", tt.operator, got, tt.want)
			}
		})
	}
}

// A seed says which mutants are run, and another one which others.
func TestSampleIsDecidedByTheSeed(t *testing.T) {
	t.Chdir("../..")
	all, err := sites(regexp.MustCompile("^leaderlease/core/"))
	if err != nil || len(all) < 100 {
		t.Fatalf("sites() = %d, %v, want hundreds", len(all), err)
	}
	if a, b := sample(all, 1), sample(all, 1); a[0] != b[0] || a[99] != b[99] {
		t.Error("sample() differs for one seed")
	}
	if a, b := sample(all, 1), sample(all, 2); a[0] == b[0] && a[99] == b[99] {
		t.Error("sample() is the same for two seeds")
	}
}
