package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestReadKnown(t *testing.T) {
	list, err := readKnown(strings.NewReader("# a comment\n\n[users]\ncommon TestAuth\n  e2e TestRole/add  \n[logs]\ne2e TestLog sometimes\n"))
	if err != nil {
		t.Fatal(err)
	}
	for test, want := range map[string]string{
		"common TestAuth":      "users",
		"common TestAuth/TLS":  "users", // a part of it
		"e2e TestRole/add":     "users",
		"e2e TestRole":         "", // the whole is not in the list
		"e2e TestAuth":         "", // another suite
		"common TestAuthority": "",
		"e2e TestLog":          "logs",
	} {
		if got := list.why(test); got != want {
			t.Errorf("why %s fails: %q, want %q", test, got, want)
		}
	}
}

func TestReadKnownRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"e2e TestA":                      `line 1: "e2e TestA" has no reason above it`,
		"[a]\nTestA":                     `line 2: "TestA" is not a suite and a test`,
		"[a]\ne2e TestA never":           `line 2: "e2e TestA never" is not a suite and a test`,
		"[a]\ne2e TestA\n[b]\ne2e TestA": `line 4: "e2e TestA" is there twice`,
	} {
		if _, err := readKnown(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	list, err := readKnown(strings.NewReader("[users]\ne2e TestAuth\ne2e TestMixed/known\ne2e TestHealed\ne2e TestGone\n[luck]\ne2e TestLucky sometimes\ne2e TestUnlucky sometimes\ne2e TestLate/a sometimes\ne2e TestLate/b sometimes\ne2e TestLate/c\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := judge(map[string]outcome{
		"e2e TestGood":         passed,
		"e2e TestParts":        passed, // said by its part
		"e2e TestParts/a":      passed,
		"e2e TestAuth":         failed,
		"e2e TestMixed":        failed,
		"e2e TestMixed/known":  failed,
		"e2e TestMixed/new":    failed,
		"e2e TestMixed/good":   passed,
		"e2e TestAfterwards":   failed, // none of its parts did
		"e2e TestAfterwards/a": passed,
		"e2e TestHealed":       passed,
		"e2e TestLucky":        passed,
		"e2e TestUnlucky":      failed,
		"e2e TestSkip":         skipped,
		"e2e TestLate":         failed, // its time was over in a
		"e2e TestLate/a":       failed,
	}, list, true)
	for name, test := range map[string]struct{ got, want []string }{
		"passed":  {v.passed, []string{"e2e TestAfterwards/a", "e2e TestGood", "e2e TestHealed", "e2e TestLucky", "e2e TestMixed/good", "e2e TestParts/a"}},
		"skipped": {v.skipped, []string{"e2e TestSkip"}},
		"users":   {v.known["users"], []string{"e2e TestAuth", "e2e TestMixed/known"}},
		"luck":    {v.known["luck"], []string{"e2e TestLate/a", "e2e TestUnlucky"}},
		"failed":  {v.failed, []string{"e2e TestAfterwards", "e2e TestMixed/new"}},
		"heals":   {v.heals, []string{"e2e TestHealed"}},
		"gone":    {v.gone, []string{"e2e TestGone", "e2e TestLate/c"}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %q, want %q", name, test.got, test.want)
		}
	}
}

func TestVerdictIsOK(t *testing.T) {
	list, err := readKnown(strings.NewReader("[users]\ne2e TestAuth\n"))
	if err != nil {
		t.Fatal(err)
	}
	asListed := map[string]outcome{"e2e TestAuth": failed, "e2e TestGood": passed}
	if v := judge(asListed, list, true); !v.ok() {
		t.Errorf("as listed: %+v", v)
	}
	for name, change := range map[string]func(map[string]outcome){
		"an unexplained failure": func(o map[string]outcome) { o["e2e TestGood"] = failed },
		"one that passes now":    func(o map[string]outcome) { o["e2e TestAuth"] = passed },
		"one that is gone":       func(o map[string]outcome) { delete(o, "e2e TestAuth") },
	} {
		outcomes := maps.Clone(asListed)
		change(outcomes)
		if judge(outcomes, list, true).ok() {
			t.Errorf("%s is fine", name)
		}
	}
	if !judge(map[string]outcome{"e2e TestGood": passed}, list, false).ok() {
		t.Error("with -only, a test that was not run is missed")
	}
}

// A test that never ended, as when its process panics, has failed.
func TestListen(t *testing.T) {
	h, err := listen(strings.NewReader(`{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/c"}
{"Action":"output","Test":"TestB/c","Output":"panic: no\n"}
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[string]outcome{"TestA": passed, "TestB": failed, "TestB/c": failed}); !maps.Equal(h.outcomes, want) || h.output.String() != "panic: no\n" {
		t.Errorf("heard %v, %q, want %v", h.outcomes, h.output.String(), want)
	}
	if _, err := listen(strings.NewReader("{\n")); err == nil {
		t.Error("half a line is an event")
	}
}
