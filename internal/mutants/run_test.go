package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestNarrow(t *testing.T) {
	pkg, dir := t.TempDir(), t.TempDir()
	file, overlay := filepath.Join(pkg, "a_test.go"), filepath.Join(dir, "overlay.json")
	const (
		tests  = "func TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) {}\nfunc TestAB(t *testing.T) {}\nfunc FuzzA(f *testing.F) {}\nfunc Tester(n int) {}\n"
		narrow = "func TestMain(m *testing.M) {}\nfunc TestA(t *testing.T) {}\nfunc leftOutTestAB[_ any](t *testing.T) {}\nfunc leftOutFuzzA[_ any](f *testing.F) {}\nfunc Tester(n int) {}\n"
	)
	for path, text := range map[string]string{file: tests, overlay: `{"Replace": {"/b.go": "/c.go"}}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := narrowed([]Mutant{{Pkg: pkg, Test: "^TestA$/^one$"}}, overlay, dir)
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ Replace map[string]string }
	b, err := os.ReadFile(made)
	if err != nil || json.Unmarshal(b, &o) != nil || o.Replace["/b.go"] != "/c.go" {
		t.Fatalf("overlay %s, %v, want the mutant's besides", b, err)
	}
	if got, err := os.ReadFile(o.Replace[file]); err != nil || string(got) != narrow {
		t.Errorf("the tests are\n%s, %v, want\n%s", got, err, narrow)
	}
}
