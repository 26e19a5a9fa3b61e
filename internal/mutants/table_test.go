package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What is said of bugs that the explorer does not find is said of bugs that there are.
func TestUnfoundAreMutants(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range (options{table: exploredTables}).mutants() {
		names[m.Name] = names[m.Name] || m.Test != "" || m.Sim
	}
	for _, table := range []map[string]string{unfound, silent} {
		for name := range table {
			if !names[name] {
				t.Errorf("%q is no bug that something else catches", name)
			}
		}
	}
}

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
		if m.Equivalent == "" && m.Test == "" && !m.Sim {
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
		if table.name == "planted" || table.name == "rules" {
			continue // described elsewhere
		}
		if got, want := told[table.name], strconv.Itoa(len(table.mutants)); got != want {
			t.Errorf("docs/reliability.md says %q bugs of table %s, want %s", got, table.name, want)
		}
	}
}
