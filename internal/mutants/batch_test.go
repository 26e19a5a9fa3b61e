package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestBranchedSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	const (
		source = "package a\n\nconst one = 1\n\nfunc sum(a, b int) (n int) {\n\tn = a + b\n\treturn n\n}\n\nfunc leave() {\n\tclose(done)\n}\n"
		want   = "package a\n\nconst one = 1\n\nfunc sum(a, b int) (n int) {" +
			" if plantedMutant == 1 { return func() (n int) {\n\tn = a - b\n\treturn n\n\n}() };" +
			" if plantedMutant == 3 { return func() (n int) {\n\tn = a + b\n\treturn -n\n\n}() };" +
			"\n\tn = a + b\n\treturn n\n}\n\nfunc leave() {" +
			" if plantedMutant == 3 { func() {\n\n\n}(); return };" +
			"\n\tclose(done)\n}\n"
	)
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []Mutant{
		{Name: "a difference", File: file, Old: "a + b", New: "a - b"},
		{Name: "a constant", File: file, Old: "one = 1", New: "one = 2"},
		{Name: "two at once", File: file, Old: "return n", New: "return -n", More: []Edit{{file, "\tclose(done)\n", "\n"}}},
		{Name: "a script", File: "page.js", Old: "1", New: "2"},
	}
	numbers := map[string]int{all[0].key(): 1, all[1].key(): 2, all[2].key(): 3, all[3].key(): 4}
	h, err := branchedSource(all, numbers)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.texts[file]; got != want {
		t.Errorf("the branches are\n%s\nwant\n%s", got, want)
	}
	if got := slices.Sorted(maps.Values(numbers)); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("mutants %v are in the batch, want 1 and 3: what is no function's body has no branch", got)
	}
	b := batch{numbers: numbers}
	if b.drop(h, "kvnode/x.go:3:1: no such thing") {
		t.Error("an error elsewhere is a mutant's")
	}
	name := "/elsewhere/" + h.names[file]
	if !b.drop(h, name+":10:2: undefined: x\n") || len(numbers) != 1 || numbers[all[0].key()] != 1 {
		t.Errorf("mutants %v are left without the one of line 10, want the first", numbers)
	}
}
