package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every mutant still applies to the source as it is. Whether it is caught takes
// longer to see: make mutants.
func TestMutantsApply(t *testing.T) {
	t.Chdir("../..")
	type key struct {
		rule, name string
		sim        bool
	}
	names := make(map[key]bool)
	for _, m := range (options{table: regexp.MustCompile("")}).mutants() {
		if m.Test == "" && !m.Sim {
			t.Errorf("%s: %s: nothing is named that catches it", m.Rule, m.Name)
		}
		name := key{m.Rule, m.Name, m.Sim}
		if names[name] {
			t.Errorf("%s: %s: listed twice", m.Rule, m.Name)
		}
		names[name] = true
		if _, err := plant(m, t.TempDir()); err != nil {
			t.Errorf("%s: %s: %v", m.Rule, m.Name, err)
		}
	}
}

// A rule that no planted bug breaks has no test that is known to notice.
func TestEveryRuleHasABug(t *testing.T) {
	directed := make(map[string]bool)
	for _, m := range rules {
		directed[m.Rule] = directed[m.Rule] || m.Test != ""
	}
	want := []string{"A1", "L6b", "§6", "§8"}
	for i := range 9 {
		want = append(want, fmt.Sprint("V", i+1))
	}
	for i := range 8 {
		want = append(want, fmt.Sprint("L", i+1))
	}
	for _, rule := range want {
		if !directed[rule] {
			t.Errorf("no planted bug of %s has a directed test", rule)
		}
	}
}

// What docs/reliability.md says of how many bugs there are is so.
func TestReliabilityCountsTheTables(t *testing.T) {
	text, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]string)
	name := regexp.MustCompile("`([a-z]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z`, ]+`) \\|.*\\| ([0-9, ]+) \\|$").FindAllStringSubmatch(string(text), -1) {
		counts := strings.Split(row[2], ", ")
		for i, table := range name.FindAllStringSubmatch(row[1], -1) {
			told[table[1]] = counts[min(i, len(counts)-1)]
		}
	}
	for _, table := range tables {
		if got, want := told[table.name], strconv.Itoa(len(table.mutants)); got != want {
			t.Errorf("docs/reliability.md says %q bugs of table %s, want %s", got, table.name, want)
		}
	}
}
